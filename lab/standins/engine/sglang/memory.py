"""Memory on nodes: policies, pages' places, shared files as NCCL makes them. System calls by number: Python names none."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import random
import string
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

PAGE = mmap.PAGESIZE
MPOL_BIND = 2
#: mbind, move_pages (arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h).
_NUMBERS = {"x86_64": (237, 279), "aarch64": (235, 239)}
_LETTERS = string.ascii_letters + string.digits
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Shared:
    """A mapping shared with another rank: `path` for a file in /dev/shm, `fd` for memory without a name."""

    size: int
    mapped: mmap.mmap
    path: Optional[str] = None
    fd: Optional[int] = None
    ring: bool = False

    @property
    def address(self) -> int:
        """Where it is mapped."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.mapped))


def parse_list(text: str) -> list[int]:
    """`0-3,8` as numbers."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def node_cpus(node: int) -> list[int]:
    """The CPUs of a node; none where there is no such node."""
    try:
        return parse_list(Path(f"/sys/devices/system/node/node{node}/cpulist").read_text(encoding="utf-8"))
    except OSError:
        return []


def nodes() -> list[int]:
    """The nodes that have memory."""
    try:
        return parse_list(Path("/sys/devices/system/node/has_memory").read_text(encoding="utf-8"))
    except OSError:
        return [0]


def _call(which: int, *args: object) -> None:
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(errno.ENOSYS, f"no system call numbers for {platform.machine()}")
    if _libc.syscall(ctypes.c_long(numbers[which]), *args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def bind(address: int, length: int, node: int) -> None:
    """mbind(MPOL_BIND) of a range. Raises OSError: EPERM where the container's filter forbids it, EINVAL outside the cpuset."""
    mask = ctypes.c_ulong(1 << node)
    _call(
        0,
        ctypes.c_void_p(address),
        ctypes.c_ulong(length),
        ctypes.c_int(MPOL_BIND),
        ctypes.byref(mask),
        ctypes.c_ulong(65),
        ctypes.c_uint(0),
    )


def may_bind(node: int) -> bool:
    """Whether mbind works here, tried on one page."""
    with mmap.mmap(-1, PAGE) as page:
        holder = ctypes.c_char.from_buffer(page)
        try:
            bind(ctypes.addressof(holder), PAGE, node)
        except OSError:
            return False
        finally:
            del holder
    return True


def places(shared: Shared) -> Counter[int]:
    """Node to pages of a mapping: by move_pages(2), which moves nothing without a list of nodes, else by numa_maps."""
    count = -(-shared.size // PAGE)
    start = shared.address
    pages = (ctypes.c_void_p * count)(*range(start, start + count * PAGE, PAGE))
    states = (ctypes.c_int * count)()
    try:
        _call(1, ctypes.c_int(0), ctypes.c_ulong(count), pages, None, states, ctypes.c_int(0))
    except PermissionError:  # Docker's default filter, without SYS_NICE
        return _places_by_text(start)
    return Counter(state for state in states if state >= 0)


def _places_by_text(start: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for line in Path("/proc/self/numa_maps").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if int(words[0], 16) == start:
            counts.update(
                {int(word[1:].split("=")[0]): int(word.split("=")[1]) for word in words[2:] if word[0] == "N" and word[1].isdigit()}
            )
    return counts


def _touch(mapped: mmap.mmap, pages: Optional[int] = None) -> None:
    """Bring pages into this process's table, as the pinning by CUDA does.

    The first `pages` of a fresh file by writing alone: a read would bring sixteen.
    """
    for at in range(0, len(mapped) if pages is None else pages * PAGE, PAGE):
        mapped[at] = mapped[at] if pages is None else 0


def make_file(payload: int, cpus: tuple[list[int], ...], ring: bool = False) -> Shared:
    """A file /dev/shm/nccl-XXXXXX as NCCL makes it: random name, all space taken at once, a counter of four bytes at its end.

    `cpus`: the file's equal parts are allocated from a CPU of each list in turn; an empty tuple leaves the thread where it is.
    Raises OSError, ENOSPC above all.
    """
    size = payload + 4
    path = "/dev/shm/nccl-" + "".join(random.choices(_LETTERS, k=6))
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        _allocate(fd, size, cpus)
        mapped = mmap.mmap(fd, size)
    except OSError:
        Path(path).unlink()
        raise
    finally:
        os.close(fd)
    _touch(mapped)
    return Shared(size, mapped, path=path, ring=ring)


def _allocate(fd: int, size: int, cpus: tuple[list[int], ...]) -> None:
    if not cpus:
        os.posix_fallocate(fd, 0, size)
        return
    before = os.sched_getaffinity(0)
    part = -(-size // len(cpus) // PAGE) * PAGE
    try:
        for number, wanted in enumerate(cpus):
            os.sched_setaffinity(0, wanted)
            start = number * part
            os.posix_fallocate(fd, start, min(part, size - start))
    finally:
        os.sched_setaffinity(0, before)


def open_file(path: str, size: int, ring: bool = False) -> Shared:
    """Another rank's file, mapped and touched."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        mapped = mmap.mmap(fd, size)
    finally:
        os.close(fd)
    _touch(mapped)
    return Shared(size, mapped, path=path, ring=ring)


def map_again(shared: Shared) -> Shared:
    """A second mapping of a file of ours of which one page is touched: a proxy pool shows itself so."""
    if shared.path is None:
        raise ValueError("only a file can be mapped again by its path")
    fd = os.open(shared.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        mapped = mmap.mmap(fd, shared.size)
    finally:
        os.close(fd)
    _touch(mapped, 1)
    return Shared(shared.size, mapped, path=shared.path)


def make_near(size: int, node: int, device: Optional[int], ring: bool = False) -> Shared:
    """Memory strictly on a node, without a name in /dev/shm: from the driver's device where there is one, else bound memory.

    `device`: a descriptor of the stand-in module's /dev/nvidiactl, whose offset names the node. OSError where the node is full.
    """
    if device is not None:
        mapped = mmap.mmap(device, size, offset=node * PAGE)
        _touch(mapped)
        return Shared(size, mapped, fd=device, ring=ring)
    fd = os.memfd_create("standin-cumem", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    mapped = mmap.mmap(fd, size)
    shared = Shared(size, mapped, fd=fd, ring=ring)
    bind(shared.address, size, node)
    _touch(mapped)
    return shared


def open_near(fd: int, size: int, ring: bool = False) -> Shared:
    """Another rank's memory by its descriptor, mapped and touched."""
    mapped = mmap.mmap(fd, size)
    _touch(mapped)
    return Shared(size, mapped, fd=fd, ring=ring)
