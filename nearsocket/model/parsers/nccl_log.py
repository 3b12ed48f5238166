"""NCCL's debug log (NCCL_DEBUG=INFO) as values. Messages of NCCL 2.18 to 2.30.7, behind any launcher's prefix.

Ray, MPI, torchrun, docker compose, kubectl and journald put a prefix before each line and several ranks write into one stream,
so nothing here rests on the start of a line, on their order or on the last line being whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.parsers.text import clean
from nearsocket.model.roles import LARGE_BYTES, carries_payload, role_of

_ORIGIN = re.compile(
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*):(?P<pid>\d{1,10}):\d{1,10} \[(?P<device>-?\d{1,6})\] (?:\S+:\d+ )?(?:\(\S+\) )?NCCL "
)
_ENV = re.compile(r"\b(?P<name>NCCL_[A-Z0-9_]+) set by environment to (?P<value>.*\S)")
_VERSION = re.compile(r"\bNCCL version (?P<version>\d+\.\d+(?:\.\d+)?)(?:\S*?(?:\+cuda| compiled with CUDA )(?P<cuda>\d+\.\d+))?")
_DRIVER = re.compile(r"\bcudaDriverVersion (?P<version>\d{4,6})\b")
_VIA = re.compile(r"(?:-> ?-?\d+(?:\[[0-9a-fA-F]+\])?|\[(?:send|receive)\])(?: \[(?:send|receive)\])? via (?P<via>[A-Za-z].*)")
_SENDER = re.compile(r"\b(?:Channel|Ring) \d+(?:/\d+)? : (?P<rank>\d+)\[(?P<device>[0-9a-fA-F]+)\] -> \d+\[[0-9a-fA-F]+\] via ")
_MMAP = re.compile(r"\bMMAP (?P<verb>allocated|imported) shareable host buffer (?P<file>\S+) size (?P<size>\d+)")
_SHM = re.compile(r"\bAllocated (?P<size>\d+) bytes of shared memory in (?P<file>\S+)")
_SHARED = re.compile(r"\bCUMEM allocated shareable buffer (?P<pointer>\S+) size (?P<size>\d+)")
_HOST_ALLOC = re.compile(r"\bCUMEM Host Alloc Size (?P<size>\d+) pointer (?P<pointer>\S+) .*?\bnuma (?P<node>-?\d+)(?= |$)")
_AFFINITY = re.compile(
    r"\b(?:Setting affinity for GPU (?P<set>\d+) to (?P<mask>[0-9a-fA-Fx,-]+)|Affinity for GPU (?P<get>\d+) is (?P<list>empty, ignoring|[0-9,-]+))"
)
_RANK = re.compile(r"\brank (?P<rank>\d+) n[Rr]anks (?P<size>\d+)\b")
_COMM_ID = re.compile(r"\bcommId (?P<id>0x[0-9a-f]+)")
_FALLBACK = re.compile(r"cuMem host allocations do not appear to be working")
_WARN = re.compile(r"\bNCCL WARN (?P<text>.*\S)")
_MARKS = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|version \d)|\bNCCL_[A-Z0-9_]+ set by environment to ")


@dataclass(frozen=True)
class LogLine:
    """One line: its number from 1 and its text without colours."""

    number: int
    text: str


@dataclass(frozen=True)
class EnvLine:
    """One variable as one process reported it."""

    name: str
    value: str
    line: LogLine


@dataclass(frozen=True)
class LogBuffer:
    """One host buffer. `file` is set for /dev/shm, `node` for cuMem where the allocation's line was in the log."""

    size_bytes: int
    line: LogLine
    file: Optional[str] = None
    node: Optional[int] = None


@dataclass(frozen=True)
class NodeLine:
    """One `CUMEM Host Alloc ... numa N` line: the driver allocates strictly on that node."""

    node: int
    size_bytes: int
    line: LogLine


@dataclass(frozen=True)
class Transport:
    """One connection's words after `via`."""

    word: str
    line: LogLine


@dataclass(frozen=True)
class NcclLog:
    """What an NCCL log says. Tuples are in the log's order; `affinity` maps a GPU index to a CPU list (None: empty, ignored).

    `mmap` and `cumem` are buffers of 1 MiB or more, each file or allocation once; `imported` are mappings of a peer's file.
    `shared_process` are lines that show two ranks in one process.
    """

    versions: tuple[str, ...]
    cuda_builds: tuple[str, ...]
    drivers: tuple[int, ...]
    env: tuple[EnvLine, ...]
    transports: tuple[Transport, ...]
    mmap: tuple[LogBuffer, ...]
    imported: tuple[LogBuffer, ...]
    cumem: tuple[LogBuffer, ...]
    numa: tuple[NodeLine, ...]
    fallback: tuple[LogLine, ...]
    affinity: tuple[tuple[int, Optional[str]], ...]
    ranks: frozenset[int]
    shared_process: tuple[LogLine, ...]
    warnings: tuple[LogLine, ...]
    sources: tuple[tuple[str, LogLine], ...] = ()

    @property
    def version(self) -> Optional[str]:
        """The first version named."""
        return self.versions[0] if self.versions else None

    def values(self, name: str) -> tuple[EnvLine, ...]:
        """Every report of that variable."""
        return tuple(entry for entry in self.env if entry.name == name)

    def line_of(self, kind: str) -> Optional[LogLine]:
        """The first line that told `version` or `driver`."""
        return next((line for name, line in self.sources if name == kind), None)

    @property
    def cumem_nodes(self) -> tuple[int, ...]:
        """The nodes of the cuMem buffers, ascending."""
        return tuple(sorted({buffer.node for buffer in self.cumem if buffer.node is not None}))


def looks_like(text: str) -> int:
    """How many lines of the text are NCCL's."""
    return sum(1 for line in text.splitlines() if _MARKS.search(clean(line)))


def parse(text: str) -> NcclLog:
    """Read a log. Lines that say nothing known are passed over; never raises."""
    lines = [LogLine(number, clean(line)) for number, line in enumerate(text.splitlines(), 1)]
    lines = [piece for line in lines for piece in _pieces(line)]
    whole_end = not text or text[-1] in "\r\n"
    versions: list[str] = []
    builds: list[str] = []
    drivers: list[int] = []
    env: list[EnvLine] = []
    sources: list[tuple[str, LogLine]] = []
    fallback: list[LogLine] = []
    affinity: dict[int, Optional[str]] = {}
    masks: list[tuple[int, str]] = []
    warnings: list[LogLine] = []
    for line in lines:
        found = _VERSION.search(line.text)
        if found:
            versions.append(found["version"])
            sources.append(("version", line))
            if found["cuda"]:
                builds.append(found["cuda"])
        found = _DRIVER.search(line.text)
        if found:
            drivers.append(int(found["version"]))
            sources.append(("driver", line))
        found = _ENV.search(line.text)
        if found:
            env.append(EnvLine(found["name"], re.sub(r"^(-?\d+)\.$", r"\1", found["value"]), line))
        if _FALLBACK.search(line.text):
            fallback.append(line)
        found = _AFFINITY.search(line.text)
        if found and found["set"]:
            masks.append((int(found["set"]), found["mask"]))
        elif found:
            affinity[int(found["get"])] = _cpus(found["list"])
        if _WARN.search(line.text):
            warnings.append(line)
    as_ranges = bool(versions) and _number(versions[0]) >= RANGES_SINCE
    for gpu, mask in masks:
        affinity[gpu] = _mask(mask, as_ranges)
    numa = tuple(_numa_lines(lines))
    mmap, imported = _mmap_buffers(lines)
    return NcclLog(
        versions=tuple(dict.fromkeys(versions)),
        cuda_builds=tuple(dict.fromkeys(builds)),
        drivers=tuple(dict.fromkeys(drivers)),
        env=tuple(env),
        transports=tuple(_transports(lines, whole_end)),
        mmap=mmap,
        imported=imported,
        cumem=tuple(_cumem_buffers(lines)),
        numa=numa,
        fallback=tuple(fallback),
        affinity=tuple(sorted(affinity.items())),
        ranks=frozenset(int(found["rank"]) for line in lines for found in [_RANK.search(line.text)] if found),
        shared_process=_shared_process(lines),
        warnings=tuple(warnings),
        sources=tuple(sources),
    )


#: From this version on `Setting affinity` prints ranges instead of hexadecimal words.
RANGES_SINCE = (2, 27)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _pieces(line: LogLine) -> Iterable[LogLine]:
    """The messages of one line: two processes' writes can run together without a line break."""
    starts = [found.start() for found in _ORIGIN.finditer(line.text)]
    if len(starts) < 2:
        return (line,)
    cuts = [0, *starts[1:], len(line.text)]
    return tuple(LogLine(line.number, line.text[a:b]) for a, b in zip(cuts, cuts[1:]))


def _cpus(text: str) -> Optional[str]:
    if text.startswith("empty"):
        return None
    try:
        return cpulist.render(cpulist.parse(text.strip(","))) or None
    except ValueError:
        return None


def _mask(text: str, as_ranges: bool) -> Optional[str]:
    """A CPU list from `Setting affinity`'s text: ranges, or words of 32 bits of which all but the first have eight digits."""
    words = text.strip(",").split(",")
    hexadecimal = all(len(word.removeprefix("0x")) == 8 for word in words[1:]) and "-" not in text
    if not hexadecimal or as_ranges:
        return _cpus(text)
    try:
        return cpulist.render(cpulist.parse_mask(",".join(words))) or None
    except ValueError:
        return None


def _transports(lines: list[LogLine], whole_end: bool) -> Iterable[Transport]:
    found: list[Transport] = []
    for line in lines:
        match = _VIA.search(line.text)
        if match:
            word = re.sub(r"\s+comm 0x.*", "", match["via"]).strip()
            found.append(Transport(re.sub(r"^(P2P/indirect/).*", r"\1", word).rstrip("/"), line))
    if (
        found
        and not whole_end
        and found[-1].line is lines[-1]
        and found[-1].word not in {other.word for other in found[:-1]} | _WHOLE
    ):
        found.pop()  # the log ends inside this line; half a word is no transport
    return found


_WHOLE = {
    "SHM/direct",
    "SHM/direct/direct",
    "P2P/CUMEM",
    "P2P/IPC",
    "P2P/direct pointer",
    "direct shared memory",
    "P2P/CUMEM/read",
    "P2P/IPC/read",
}


def _mmap_buffers(lines: list[LogLine]) -> tuple[tuple[LogBuffer, ...], tuple[LogBuffer, ...]]:
    allocated: dict[str, LogBuffer] = {}
    imported: dict[str, LogBuffer] = {}
    for line in lines:
        match = _MMAP.search(line.text)
        if match:
            size, file = int(match["size"]), match["file"]
            if size >= LARGE_BYTES:
                (allocated if match["verb"] == "allocated" else imported)[file] = LogBuffer(size, line, file)
            continue
        match = _SHM.search(line.text)  # all that versions before 2.23 print; the pool of the proxy threads prints it too
        if match and carries_payload(role_of(int(match["size"])), int(match["size"])):
            allocated.setdefault(match["file"], LogBuffer(int(match["size"]), line, match["file"]))
    return tuple(allocated.values()), tuple(buffer for file, buffer in imported.items() if file not in allocated)


def _origin(line: LogLine) -> str:
    found = _ORIGIN.search(line.text)
    return f"{found['host']}:{found['pid']}" if found else ""


def _numa_lines(lines: list[LogLine]) -> Iterable[NodeLine]:
    for line in lines:
        found = _HOST_ALLOC.search(line.text)
        if found:
            yield NodeLine(int(found["node"]), int(found["size"]), line)


def _cumem_buffers(lines: list[LogLine]) -> Iterable[LogBuffer]:
    """Buffers of 1 MiB or more: each `shareable` line with the node of its allocation, then allocations that have none.

    The allocation is rounded up to the granularity (2 MiB), so a control block of 4 KiB looks large there: its `shareable`
    line tells the truth and wins. Both lines name the same pointer in the same process.
    """
    waiting: dict[tuple[str, str], list[LogBuffer]] = {}
    found: list[tuple[int, LogBuffer]] = []
    for position, line in enumerate(lines):
        match = _HOST_ALLOC.search(line.text)
        if match:
            alloc = LogBuffer(int(match["size"]), line, None, int(match["node"]))
            waiting.setdefault((_origin(line), match["pointer"]), []).append(alloc)
            continue
        match = _SHARED.search(line.text)
        if match:
            allocs = waiting.get((_origin(line), match["pointer"]))
            node = allocs.pop().node if allocs else None
            found.append((position, LogBuffer(int(match["size"]), line, None, node)))
    rest = [(alloc.line.number, alloc) for allocs in waiting.values() for alloc in allocs]
    return [buffer for _, buffer in sorted(found + rest, key=lambda pair: pair[0]) if buffer.size_bytes >= LARGE_BYTES]


def _shared_process(lines: list[LogLine]) -> tuple[LogLine, ...]:
    """Lines that show one process at work for two ranks.

    Either two ranks of one communicator id, or ranks on two CUDA devices, or channels that leave from two GPUs: SHM and P2P
    channels are announced by their sender. Several ranks on one device in one process are just its different groups.
    """
    by_comm: dict[tuple[str, str], dict[int, LogLine]] = {}
    by_device: dict[str, dict[tuple[int, str], LogLine]] = {}
    by_sender: dict[str, dict[str, LogLine]] = {}
    for line in lines:
        origin = _ORIGIN.search(line.text)
        if not origin:
            continue
        process = f"{origin['host']}:{origin['pid']}"
        rank, comm, sender = _RANK.search(line.text), _COMM_ID.search(line.text), _SENDER.search(line.text)
        if rank and comm:
            by_comm.setdefault((process, comm["id"]), {}).setdefault(int(rank["rank"]), line)
        if rank:
            by_device.setdefault(process, {}).setdefault((int(rank["rank"]), origin["device"]), line)
        if sender:
            by_sender.setdefault(process, {}).setdefault(sender["device"], line)
    for ranks in by_comm.values():
        if len(ranks) > 1:
            return tuple(ranks.values())
    for places in by_device.values():
        if len({rank for rank, _ in places}) > 1 and len({device for _, device in places}) > 1:
            return tuple(places.values())
    for senders in by_sender.values():
        if len(senders) > 1:
            return tuple(senders.values())
    return ()
