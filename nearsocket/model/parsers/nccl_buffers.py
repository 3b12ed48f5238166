"""The host buffers of an NCCL log: files in /dev/shm, and cuMem allocations with their node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nearsocket.model.parsers.nccl_ranks import process_of
from nearsocket.model.parsers.nccl_values import LogBuffer, LogLine, NodeLine
from nearsocket.model.roles import LARGE_BYTES, carries_payload, role_of

_MMAP = re.compile(r"\bMMAP (?P<verb>allocated|imported) shareable host buffer (?P<file>\S+) size (?P<size>\d{1,18})")
_SHM = re.compile(r"\bAllocated (?P<size>\d{1,18}) bytes of shared memory in (?P<file>\S+)")
_SHARED = re.compile(r"\bCUMEM allocated shareable buffer (?P<pointer>\S+) size (?P<size>\d{1,18})")
_HOST_ALLOC = re.compile(
    r"\bCUMEM Host Alloc Size (?P<size>\d{1,18}) pointer (?P<pointer>\S+) .*?\bnuma (?P<node>-?\d{1,6})(?= |$)"
)


def mmap_buffers(lines: Sequence[LogLine]) -> tuple[tuple[LogBuffer, ...], tuple[LogBuffer, ...]]:
    """The files in /dev/shm of 1 MiB or more, each once: those made in this log, and a peer's outside it."""
    allocated: dict[str, LogBuffer] = {}
    imported: dict[str, LogBuffer] = {}
    for line in lines:
        match = _MMAP.search(line.text) if "MMAP " in line.text else None
        if match:
            size, file = int(match["size"]), match["file"]
            if size >= LARGE_BYTES:
                (allocated if match["verb"] == "allocated" else imported)[file] = LogBuffer(size, line, file)
            continue
        match = (
            _SHM.search(line.text) if "shared memory in" in line.text else None
        )  # all that versions before 2.23 print; the pool of the proxy threads prints it too
        if match and carries_payload(role_of(int(match["size"])), int(match["size"])):
            allocated.setdefault(match["file"], LogBuffer(int(match["size"]), line, match["file"]))
    return tuple(allocated.values()), tuple(buffer for file, buffer in imported.items() if file not in allocated)


def numa_lines(lines: Sequence[LogLine]) -> Iterable[NodeLine]:
    """Every line that tells a cuMem allocation's node, whatever its size."""
    for line in lines:
        found = _HOST_ALLOC.search(line.text) if "CUMEM " in line.text else None
        if found:
            yield NodeLine(int(found["node"]), int(found["size"]), line)


def cumem_buffers(lines: Sequence[LogLine]) -> Iterable[LogBuffer]:
    """Buffers of 1 MiB or more: each `shareable` line with the node of its allocation, then allocations that have none.

    The allocation is rounded up to the granularity (2 MiB), so a control block of 4 KiB looks large there: its `shareable`
    line tells the truth and wins. Both lines name the same pointer in the same process; where
    the pointers were removed, the process's last large enough allocation is taken.
    """
    waiting: dict[str, list[tuple[str, LogBuffer]]] = {}
    found: list[tuple[int, LogBuffer]] = []
    order: dict[int, int] = {}
    for position, line in enumerate(lines):
        if "CUMEM " not in line.text:
            continue
        match = _HOST_ALLOC.search(line.text)
        if match:
            alloc = LogBuffer(int(match["size"]), line, None, int(match["node"]))
            order[id(alloc)] = position
            waiting.setdefault(process_of(line), []).append((match["pointer"], alloc))
            continue
        match = _SHARED.search(line.text)
        if match:
            size = int(match["size"])
            allocs = waiting.get(process_of(line), [])
            pair = next((p for p in reversed(allocs) if p[0] == match["pointer"]), None)
            pair = pair or next((p for p in reversed(allocs) if p[1].size_bytes >= size), None)
            if pair:
                allocs.remove(pair)
            found.append((position, LogBuffer(size, line, None, pair[1].node if pair else None)))
    found += [(order[id(alloc)], alloc) for allocs in waiting.values() for _, alloc in allocs]
    return [buffer for _, buffer in sorted(found, key=lambda entry: entry[0]) if buffer.size_bytes >= LARGE_BYTES]
