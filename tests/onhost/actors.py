"""Processes that act for the tests: ranks with files as NCCL makes them, titles, crowds. Ended by the fixture that starts them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

PAGE = os.sysconf("SC_PAGE_SIZE")

# NCCL: mkstemp, fallocate, mmap; the peer opens the same name and maps it; then the name is unlinked. Each touches what it writes.
_OWNER = """
import mmap, os, sys, tempfile
pages, touched = int(sys.argv[1]), int(sys.argv[2])
fd, name = tempfile.mkstemp(prefix="nccl-", dir="/dev/shm")
os.posix_fallocate(fd, 0, pages * mmap.PAGESIZE)
area = mmap.mmap(fd, pages * mmap.PAGESIZE)
second = mmap.mmap(fd, mmap.PAGESIZE, offset=mmap.PAGESIZE) if "two" in sys.argv else None
for page in range(touched):
    area[page * mmap.PAGESIZE] = 1
if second: second[0] = 1
print(name, flush=True)
sys.stdin.readline()
os.unlink(name)
print("unlinked", flush=True)
sys.stdin.read()
"""
_PEER = """
import mmap, os, sys
pages, touched = int(sys.argv[2]), int(sys.argv[3])
fd = os.open(sys.argv[1], os.O_RDWR)
area = mmap.mmap(fd, pages * mmap.PAGESIZE)
os.close(fd)
for page in range(touched):
    area[page * mmap.PAGESIZE]
print("attached", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Pair:
    """Two processes that share one unlinked nccl- file, and that file's name."""

    owner: int
    peer: int
    file: str


def start(code: str, *args: object, argv0: str | None = None, **options: object) -> subprocess.Popen[bytes]:
    """A Python process that runs that code, with pipes."""
    command = [argv0 or sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        command, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
    )


def line(process: subprocess.Popen[bytes]) -> str:
    """The next line that it says."""
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def end(process: subprocess.Popen[bytes]) -> None:
    """End it, stopped or not."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


@contextlib.contextmanager
def pair(pages: int = 64, owner_touches: int = 64, peer_touches: int = 16, two_mappings: bool = False) -> Iterator[Pair]:
    """A pair of ranks."""
    owner = start(_OWNER, pages, owner_touches, *(["two"] if two_mappings else []))
    name = line(owner)
    peer = start(_PEER, name, pages, peer_touches)
    try:
        assert line(peer) == "attached"
        assert owner.stdin is not None
        owner.stdin.write(b"\n")
        owner.stdin.flush()
        assert line(owner) == "unlinked"
        yield Pair(owner.pid, peer.pid, name)
    finally:
        end(peer)
        end(owner)


@contextlib.contextmanager
def process(code: str, *args: object, argv0: str | None = None, env: dict[str, str] | None = None) -> Iterator[int]:
    """A process that runs that code up to its first line of output, then waits."""
    one = start(code + "\nimport sys\nprint('ready', flush=True)\nsys.stdin.read()\n", *args, argv0=argv0, env=env)
    try:
        assert line(one) == "ready"
        yield one.pid
    finally:
        end(one)


_CROWD = """
import os, signal, sys
pids = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    pids.append(pid)
print(*pids, flush=True)
sys.stdin.read()
for pid in pids:
    os.kill(pid, signal.SIGKILL)
for pid in pids:
    os.waitpid(pid, 0)
"""


@contextlib.contextmanager
def crowd(count: int) -> Iterator[list[int]]:
    """That many sleeping processes, forked from one small parent that ends them when its input closes."""
    parent = start(_CROWD, count)
    try:
        yield [int(word) for word in line(parent).split()]
    finally:
        parent.communicate(timeout=60)
