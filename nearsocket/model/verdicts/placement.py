"""Where buffers lie against where the GPUs are: one rule for pasted numa_maps and for an audit (DESIGN, placement verdicts)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist, nccldebug
from nearsocket.model.exitcode import severity, worst_status
from nearsocket.model.finding import Evidence, Finding, Status, failed, passed, unknown, warned
from nearsocket.model.host import Buffer
from nearsocket.model.roles import carries_payload

PLACEMENT_ID = "nccl.buffer-placement"
#: A file with more than this share of its bytes on far nodes is slow.
FAR_SHARE = 0.01
#: Near needs this share of a file's bytes accounted for: a page that no process mapped is not seen.
PRESENT_SHARE = 0.99
#: How many files a finding shows; the rest are counted.
EVIDENCE_FILES = 12


class Placement(str, enum.Enum):
    """Where one file lies."""

    NEAR = "near"
    FAR = "far"
    SPLIT = "split"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FilePlacement:
    """One file's verdict. `size_bytes` is 0 where the file's length is not known (a pasted numa_maps does not tell it)."""

    buffer: Buffer
    placement: Placement
    near_bytes: int
    far_bytes: int
    present_bytes: int
    size_bytes: int
    reason: str

    @property
    def far_share(self) -> float:
        """The share of the file's bytes on far nodes: of its length where known, else of the bytes present."""
        whole = max(self.size_bytes, self.present_bytes)
        return self.far_bytes / whole if whole else 0.0

    @property
    def status(self) -> Status:
        """What this placement means: split over 1 % far fails like far, below it warns."""
        if self.placement is Placement.NEAR:
            return Status.PASS
        if self.placement is Placement.FAR:
            return Status.FAIL
        if self.placement is Placement.SPLIT:
            return Status.FAIL if self.far_share > FAR_SHARE else Status.WARN
        return Status.UNKNOWN


def payload_buffers(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """The buffers that placement is about: rings, and unknown ones of 1 MiB or more."""
    return tuple(b for b in buffers if carries_payload(b.role, max(b.size_bytes, b.present_bytes)))


def judge_file(buffer: Buffer, near: Optional[frozenset[int]]) -> FilePlacement:
    """Judge one file against the near nodes (None: not known where the GPUs are).

    Where `buffer.size_bytes` is known (an audit), near needs 99 % of it accounted for; where it is 0 (pasted text) only the
    pages shown are judged. Far pages over 1 % of the file fail however little else was seen: more pages cannot undo them.
    """
    present, size = buffer.present_bytes, buffer.size_bytes
    near_bytes = sum(count for node, count in buffer.by_node.items() if near and node in near)
    far_bytes = present - near_bytes if near else 0
    whole = max(size, present)

    def verdict(placement: Placement, reason: str) -> FilePlacement:
        return FilePlacement(buffer, placement, near_bytes, far_bytes, present, size, reason)

    if not present:
        return verdict(
            Placement.UNKNOWN, "no page is shown on any node: not touched yet, or not mapped by the processes that were read"
        )
    if not near:
        return verdict(Placement.UNKNOWN, "it is not known which nodes are near the GPUs")
    if far_bytes > FAR_SHARE * whole:
        if near_bytes:
            return verdict(Placement.SPLIT, f"{percent(far_bytes, whole)} of it on far nodes")
        return verdict(Placement.FAR, "no byte of it on a near node")
    if present < PRESENT_SHARE * size:
        return verdict(Placement.INCOMPLETE, f"only {percent(present, size)} of its {size:,} bytes are accounted for")
    if far_bytes:
        return verdict(Placement.SPLIT, f"{percent(far_bytes, whole)} of it on far nodes")
    return verdict(Placement.NEAR, "all of it on near nodes")


def placement_finding(
    subject: str,
    judged: Sequence[FilePlacement],
    evidence: Optional[Mapping[str, Sequence[Evidence]]] = None,
    near: Optional[frozenset[int]] = None,
    remedy: Optional[str] = None,
) -> Finding:
    """One finding for one subject (a pasted file, a replica, a process) from its judged files; the worst file decides.

    `evidence`: a buffer's `identity` to the lines it was read from; without it a line is made from the figures. `near` only
    words the summary and the remedy: each file was judged by its own near nodes. Without files the finding is unknown.
    """
    if not judged:
        return unknown(subject, NO_BUFFERS, (), HOW_TO_SHOW)
    worst = worst_status(file.status for file in judged)
    ordered = sorted(judged, key=lambda file: (-severity(file.status), -file.far_bytes, file.buffer.file))
    shown = tuple(line for file in ordered[:EVIDENCE_FILES] for line in _evidence_of(file, evidence))
    summary = _summary(worst, ordered, near)
    if worst is Status.PASS:
        return passed(subject, summary, shown)
    if worst is Status.FAIL:
        return failed(subject, summary, shown, remedy or restart(near))
    if worst is Status.WARN:
        return warned(subject, summary, shown, remedy or restart(near))
    return unknown(subject, summary, shown, NAME_NEAR if near is None else HOW_TO_SHOW)


NO_BUFFERS = (
    "no ring buffer is shown, which proves nothing: cuMem or P2P in use, the wrong process, no permission, no communicator"
    " yet, or the process is gone"
)
HOW_TO_SHOW = (
    f"sudo cat /proc/PID/numa_maps > FILE  # of every rank, after the first request; or judge NCCL's log, with {nccldebug.WORDS}"
)
NAME_NEAR = "cat /sys/bus/pci/devices/*/numa_node; nvidia-smi topo -m  # then say where the GPUs are: --near NODES"


def restart(near: Optional[frozenset[int]]) -> str:
    """What holds the next start near, one way a line; pages that NCCL pinned cannot be moved, so it takes a restart."""
    node = cpulist.render(near) if near else "NODE"
    return (
        f"numactl --cpunodebind={node} --membind={node} COMMAND  # NCCL pinned these pages: restart, held near one of these ways\n"
        f"docker run --cpuset-mems={node} ...\n"
        "docker run -e NCCL_CUMEM_ENABLE=1 --cap-add SYS_NICE ...  # NCCL 2.24 and a driver for CUDA 12.6, or newer"
    )


def percent(part: int, whole: int) -> str:
    """A share as text with the digits that matter: `0.99 %`, `100 %`, `99.97 %`; never rounded up to a limit or to all."""
    if not whole:
        return "0 %"
    share = 100 * part / whole
    if part == whole or share == int(share):
        return f"{int(share)} %"
    digits = 1 if 10 <= share < 99 else 2
    scale = 10**digits
    return f"{int(share * scale) / scale or 1 / scale:.{digits}f} %"


def mib(count: int) -> str:
    """Bytes as MiB with one digit."""
    return f"{count / (1 << 20):.1f} MiB"


def _evidence_of(file: FilePlacement, evidence: Optional[Mapping[str, Sequence[Evidence]]]) -> tuple[Evidence, ...]:
    found = tuple((evidence or {}).get(file.buffer.identity, ()))
    if found:
        return found
    nodes = " ".join(f"N{node}={count}" for node, count in sorted(file.buffer.by_node.items())) or "no page present"
    return (Evidence(file.buffer.file, f"bytes {nodes} of {file.size_bytes or file.present_bytes}"),)


def _summary(worst: Status, judged: Sequence[FilePlacement], near: Optional[frozenset[int]]) -> str:
    count = f"{len(judged)} ring buffer{'s' if len(judged) > 1 else ''}"
    present = sum(file.present_bytes for file in judged)
    by_node: dict[int, int] = {}
    for file in judged:
        for node, held in file.buffer.by_node.items():
            by_node[node] = by_node.get(node, 0) + held
    where = ", ".join(f"node {node}: {mib(held)}" for node, held in sorted(by_node.items())) or "no page shown"
    if worst is Status.PASS:
        return f"near: {count}, {mib(present)}, all on node {cpulist.render(by_node)}"
    bad = [file for file in judged if file.status is worst]
    if worst is Status.UNKNOWN:
        return f"unknown: {bad[0].buffer.file}: {bad[0].reason} ({count}; {where})"
    far = sum(file.far_bytes for file in judged)
    word = "far" if all(file.placement is Placement.FAR for file in bad) else "split"
    gpus = f", GPUs on node {cpulist.render(near)}" if near else ""
    return f"{word}: {percent(far, present)} of {mib(present)} in {count} on far nodes ({where}{gpus})"
