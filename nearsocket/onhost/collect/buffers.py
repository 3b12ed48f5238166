"""Where the pages of a process's nccl- files lie, page by page.

Asked of the kernel by move_pages(2) with nodes=NULL, over the ranges of those files alone: it moves nothing and costs the
same however large the process is. /proc/PID/numa_maps walks every page of the process; it is the fallback.

Imports are kept few, and values are named tuples: the watch loads this every few minutes.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Optional, Union

from nearsocket.model.text import decode

MARK = b"/dev/shm/nccl-"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h.
SYSCALL = {"x86_64": 279, "aarch64": 239}
_AT_ONCE = 16384
#: Mappings of one process that are measured. 8 ranks with 32 channels each way make some hundreds; any user can make 65530.
MOST_RANGES = 4096
_DELETED = " (deleted)"
_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+)\s+(.*)\Z")
_libc = ctypes.CDLL(None, use_errno=True)


class Range(NamedTuple):
    """One mapping of an nccl- file: addresses, offset in the file, and the file's identity."""

    start: int
    end: int
    offset: int
    device: str
    inode: int
    file: str
    deleted: bool


class Placement(NamedTuple):
    """Pages present in one mapping, node to count, of `page_bytes` each; the mapping's policy where it was read."""

    pages: dict[int, int]
    page_bytes: int = PAGE_BYTES
    policy: Optional[str] = None


def chunks(path: Union[str, Path]) -> Iterator[bytes]:
    """A /proc file, one read at a time. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                return
            yield chunk
    finally:
        os.close(fd)


def lines(path: Union[str, Path]) -> Iterator[bytes]:
    """A /proc file's lines, held one read at a time. Raises OSError."""
    rest = b""
    for chunk in chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def maps_any(pid: int, signs: Sequence[bytes]) -> bool:
    """Whether a process maps a file whose path holds one of these. Raises OSError."""
    # The kernel ends a read of maps behind a whole line (fs/seq_file.c), so that no sign is cut in two.
    return any(sign in chunk for chunk in chunks(f"/proc/{pid}/maps") for sign in signs)


def ranges(maps: Iterator[bytes]) -> list[Range]:
    """The nccl- mappings among the lines of /proc/PID/maps."""
    found: list[Range] = []
    for line in maps:
        match = _LINE.match(line) if MARK in line else None
        if not match:
            continue
        name = decode(match[7])
        deleted = name.endswith(_DELETED)
        found.append(
            Range(
                start=int(match[1], 16),
                end=int(match[2], 16),
                offset=int(match[3], 16),
                device=f"{int(match[4], 16)}:{int(match[5], 16)}",
                inode=int(match[6]),
                file=name[: -len(_DELETED)] if deleted else name,
                deleted=deleted,
            )
        )
    return found


def by_move_pages(pid: int, one: Range) -> Placement:
    """Ask the kernel for each page's node. Raises OSError (EPERM, ENOSYS, ESRCH ...) where it refuses the whole."""
    counts: Counter[int] = Counter()
    for first in range(one.start, one.end, PAGE_BYTES * _AT_ONCE):
        counts.update(_states(pid, range(first, min(one.end, first + PAGE_BYTES * _AT_ONCE), PAGE_BYTES)))
    # Negative states are errors of one page: -ENOENT is a page that this process has not touched.
    return Placement({node: count for node, count in sorted(counts.items()) if node >= 0})


def sampled_nodes(pid: int, one: Range, most: int) -> frozenset[int]:
    """The nodes of at most `most` pages, spread over the mapping. Raises OSError as `by_move_pages`."""
    step = PAGE_BYTES * max(1, (one.end - one.start) // PAGE_BYTES // most)
    return frozenset(node for node in _states(pid, range(one.start, one.end, step)) if node >= 0)


def _states(pid: int, where: range) -> array.array[int]:
    """Each address's node, or a negative errno (move_pages(2) with no target nodes)."""
    number = SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"no move_pages number for {os.uname().machine}")
    addresses = array.array("Q", where)
    states = array.array("i", bytes(4 * len(addresses)))
    pages = (ctypes.c_uint64 * len(addresses)).from_buffer(addresses)
    status = (ctypes.c_int * len(addresses)).from_buffer(states)
    count = ctypes.c_ulong(len(addresses))
    if _libc.syscall(ctypes.c_long(number), ctypes.c_int(pid), count, pages, None, status, ctypes.c_int(0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return states


def by_numa_maps(numa_maps: Iterator[bytes], wanted: Sequence[Range]) -> dict[int, Placement]:
    """The placements of those ranges by start address, from the lines of /proc/PID/numa_maps."""
    starts = {one.start for one in wanted}
    found: dict[int, Placement] = {}
    for line in numa_maps:
        address, _, rest = decode(line).partition(" ")
        if MARK not in line or int(address, 16) not in starts:
            continue
        policy = rest.partition(" file=")[0]
        fields = rest[len(policy) :].split()
        pages = {int(word[1:].partition("=")[0]): int(word.partition("=")[2]) for word in fields if re.match(r"N\d+=\d+\Z", word)}
        kernel_kb = next((int(word[18:]) for word in fields if re.match(r"kernelpagesize_kB=\d+\Z", word)), 0)
        # Counts are in PAGE_SIZE, on hugetlbfs in that size (fs/proc/task_mmu.c, show_numa_map).
        page_bytes = max(PAGE_BYTES, kernel_kb * 1024) if "huge" in fields else PAGE_BYTES
        found[int(address, 16)] = Placement(pages, page_bytes, policy)
    return found


def first_line(path: Path) -> Optional[str]:
    """The first line of numa_maps, without the walk over the rest; None where it is empty. Raises OSError.

    A read of one byte makes the kernel format one mapping only (fs/seq_file.c: it goes on while the caller's buffer has room).
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        line = bytearray()
        while len(line) < 8192:
            byte = os.read(fd, 1)
            if not byte or byte == b"\n":
                break
            line += byte
        return decode(bytes(line)) or None
    finally:
        os.close(fd)


def measure(proc: Path, pid: int) -> dict[str, object]:
    """The contract's `buffers`, `buffers_by` and `buffers_reason` of one process. Raises OSError where maps cannot be read."""
    there = ranges(lines(proc / str(pid) / "maps"))
    wanted = there[:MOST_RANGES]
    placed: dict[int, Placement] = {}
    way, reason = "move_pages", None
    try:
        for one in wanted:
            placed[one.start] = by_move_pages(pid, one)
    except OSError as error:
        if error.errno == errno.ESRCH:
            raise ProcessLookupError(errno.ESRCH, "the process ended") from None
        way, reason = "numa_maps", f"move_pages: {error.strerror}"
        placed = by_numa_maps(lines(proc / str(pid) / "numa_maps"), wanted)
    entries = [_entry(one, placed[one.start]) for one in wanted if one.start in placed]
    if len(entries) < len(wanted):
        reason = f"{reason}; {len(wanted) - len(entries)} mappings went away while they were read"
    if len(there) > len(wanted):
        reason = f"{reason}; " if reason else ""
        reason += f"only {len(wanted)} of {len(there)} mappings were measured"
    return {"buffers": entries, "buffers_by": way, "buffers_reason": reason}


def _entry(one: Range, placed: Placement) -> dict[str, object]:
    return {
        "file": one.file,
        "device": one.device,
        "inode": one.inode,
        "deleted": one.deleted,
        "offset": one.offset,
        "length": one.end - one.start,
        "pages": {str(node): count for node, count in placed.pages.items()},
        "page_bytes": placed.page_bytes,
        "policy": placed.policy,
    }
