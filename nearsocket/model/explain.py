"""Judges pasted text: a numa_maps, an NCCL log, `nvidia-smi topo -m` or `numactl -H`, told apart by what is in it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from nearsocket.model import exitcode, facts
from nearsocket.model.errors import EXIT_UNKNOWN
from nearsocket.model.facts import Facts
from nearsocket.model.finding import Evidence, Finding, Status, not_applicable, unknown
from nearsocket.model.host import Node, NodeClaim, NodeMemory
from nearsocket.model.parsers import nccl_log, numa_maps, numactl, topology
from nearsocket.model.parsers.numactl import Hardware, NumactlError
from nearsocket.model.parsers.topology import Topology, TopologyError
from nearsocket.model.verdicts import gpunode, population, roomtext
from nearsocket.model.verdicts.cumem import CUMEM_ID, judge_log, log_placement
from nearsocket.model.verdicts.placement import PLACEMENT_ID, judge_file, payload_buffers, placement_finding

MIB = 1 << 20
TOPO, NUMACTL = "nvidia-smi topo -m", "numactl -H"


class Kind(str, enum.Enum):
    """What a text is; the value is the word in JSON."""

    NUMA_MAPS = "numa_maps"
    NCCL_LOG = "nccl_log"
    TOPOLOGY = "topology"
    NUMACTL_HARDWARE = "numactl_hardware"
    UNRECOGNISED = "unrecognised"


@dataclass(frozen=True)
class Explained:
    """One text judged. `reason` says why the status is not pass, None on a pass; `facts` is empty where nothing is certain."""

    file: str
    kind: Kind
    status: Status
    reason: Optional[str]
    facts: Facts = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def code(self, strict: bool = False) -> int:
        """The exit code of this text alone; 3 where it could not be read."""
        if not self.facts:
            return exitcode.worst_of((EXIT_UNKNOWN, exitcode.exit_code(self.findings, strict)))
        return exitcode.exit_code(self.findings, strict)


def explain(file: str, text: str, near: Optional[frozenset[int]] = None) -> Explained:
    """Judge one text. `near`: the nodes near the GPUs, None where nobody said. Never raises, whatever the text holds."""
    kind = recognise(text)
    if kind is Kind.UNRECOGNISED:
        return Explained(file, kind, Status.UNKNOWN, _unrecognised(text))
    return _JUDGES[kind](file, text, near)


def recognise(text: str) -> Kind:
    """The kind with the most lines in the text. A log that quotes another text stays what most of it is."""
    counts = {
        Kind.NCCL_LOG: nccl_log.looks_like(text),
        Kind.TOPOLOGY: topology.looks_like(text),
        Kind.NUMACTL_HARDWARE: numactl.looks_like(text),
        Kind.NUMA_MAPS: numa_maps.looks_like(text),
    }
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] else Kind.UNRECOGNISED


def _unrecognised(text: str) -> str:
    expected = "expected /proc/PID/numa_maps, an NCCL log (NCCL_DEBUG=INFO), nvidia-smi topo -m or numactl -H"
    first = next((line.strip() for line in text.splitlines() if line.strip()), None)
    if first is None:
        return f"{expected}, found an empty text"
    return f"{expected}, found text that begins {first[:60]!r}"


def _numa_maps(file: str, text: str, near: Optional[frozenset[int]]) -> Explained:
    maps = numa_maps.parse(text)
    judged = [judge_file(buffer, near) for buffer in payload_buffers(maps.buffers)]
    lines = {b.identity: _lines((line.number, line.text) for line in maps.lines_of(b.file)) for b in maps.buffers}
    finding = placement_finding(file, judged, lines, near)
    if maps.cut and finding.status is not Status.FAIL:
        line = maps.cut[0]
        what = f"line {line.number}: the line of {line.file} is cut; expected it to end in kernelpagesize_kB"
        finding = unknown(
            file,
            what,
            _lines((cut.number, cut.text) for cut in maps.cut),
            "sudo cat /proc/PID/numa_maps > FILE  # the whole of it, and judge that file",
        )
        return _result(file, Kind.NUMA_MAPS, {}, [(PLACEMENT_ID, finding)])
    return _result(file, Kind.NUMA_MAPS, facts.numa_maps(maps), [(PLACEMENT_ID, finding)])


def _nccl_log(file: str, text: str, near: Optional[frozenset[int]]) -> Explained:
    log = nccl_log.parse(text)
    found = [(CUMEM_ID, judge_log(log, file)), (PLACEMENT_ID, log_placement(log, near, file))]
    return _result(file, Kind.NCCL_LOG, facts.nccl_log(log), found)


def _topology(file: str, text: str, _: Optional[frozenset[int]]) -> Explained:
    try:
        table = topology.parse(text)
    except TopologyError as error:
        finding = unknown(file, str(error), _lines([(error.number, error.line)]), f"{TOPO} > FILE  # and judge that file")
        return _result(file, Kind.TOPOLOGY, {}, [(gpunode.GPU_NODE, finding)])
    return _result(file, Kind.TOPOLOGY, facts.topology(table), list(_gpus(table)))


def _gpus(table: Topology) -> Iterable[tuple[str, Finding]]:
    for gpu in table.gpus:
        said = gpu.line.strip() if table.has_numa else f"{gpu.line.strip()} (the table has no column NUMA Affinity)"
        claim = NodeClaim(TOPO, gpu.node, said, gpu.nodes)
        yield gpunode.GPU_NODE, gpunode.judge_claims(f"GPU{gpu.index}", (claim,), {})


def _numactl(file: str, text: str, near: Optional[frozenset[int]]) -> Explained:
    try:
        hardware = numactl.parse(text)
    except NumactlError as error:
        finding = unknown(file, str(error), (), f"{NUMACTL} > FILE  # and judge that file")
        return _result(file, Kind.NUMACTL_HARDWARE, {}, [(population.NODE_POPULATION, finding)])
    if not hardware.numa:
        shown = (Evidence(NUMACTL, "No NUMA available on this system"),)
        finding = not_applicable(file, "the kernel has no NUMA: there is no far node", shown)
        return _result(file, Kind.NUMACTL_HARDWARE, facts.numactl(hardware), [(population.NODE_POPULATION, finding)])
    nodes, read = _nodes(hardware), _lines(line for node in hardware.nodes for line in node.lines)
    found = [(population.NODE_POPULATION, population.judge_nodes(file, nodes, near or (), read))]
    found += [(roomtext.NEAR_FREE, roomtext.judge_free(node, nodes, read)) for node in sorted(near or ())]
    return _result(file, Kind.NUMACTL_HARDWARE, facts.numactl(hardware), found)


def _nodes(hardware: Hardware) -> tuple[Node, ...]:
    """The nodes as the host model has them; a pasted text tells no socket."""
    rows = hardware.distances or ((),) * len(hardware.nodes)
    return tuple(
        Node(node.node, None, node.cpus, NodeMemory(node.size_mb * MIB, node.free_mb * MIB), node.memoryless, tuple(row))
        for node, row in zip(hardware.nodes, rows)
    )


def _lines(lines: Iterable[tuple[int, str]]) -> tuple[Evidence, ...]:
    return tuple(Evidence(f"line {number}", text.strip()) for number, text in lines)


def _result(file: str, kind: Kind, shown: Facts, found: Sequence[tuple[str, Finding]]) -> Explained:
    findings = tuple(dataclasses.replace(finding, id=id) for id, finding in found)
    status = exitcode.worst_status(finding.status for finding in findings)
    reason = None if status is Status.PASS else next(finding.summary for finding in findings if finding.status is status)
    return Explained(file, kind, status, reason, shown, findings)


_JUDGES: dict[Kind, Callable[[str, str, Optional[frozenset[int]]], Explained]] = {
    Kind.NUMA_MAPS: _numa_maps,
    Kind.NCCL_LOG: _nccl_log,
    Kind.TOPOLOGY: _topology,
    Kind.NUMACTL_HARDWARE: _numactl,
}
