"""One apply at a time on a host: a lock that the kernel drops when its holder dies, with the holder's name in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree

_PAUSE_S = 0.2


class Busy(NearsocketError):
    """Another one holds the lock: it says nothing of the host."""


@contextlib.contextmanager
def exclusive(tree: Tree, holder: str, wait_s: float) -> Iterator[None]:
    """Hold the lock while the block runs. Raises NearsocketError that names who holds it, OSError where it cannot be made."""
    fd = _held(tree, wait_s)
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()}, {holder}\n".encode("utf-8", "replace"), 0)
        yield
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _held(tree: Tree, wait_s: float) -> int:
    """The lock's file, locked. One that its holder took away on leaving the host is no lock any more: the next one is made."""
    while True:
        disk.make_folders(tree.lock.parent)
        fd = os.open(tree.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _take(fd, fcntl.LOCK_EX, wait_s)
            if _is(tree, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is(tree: Tree, fd: int) -> bool:
    try:
        return os.path.samestat(tree.lock.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def forget(tree: Tree) -> None:
    """Take the lock's file and folder away, while holding it. Whoever waits for it makes a new one."""
    disk.remove(tree.lock)
    with contextlib.suppress(OSError):
        tree.lock.parent.rmdir()


@contextlib.contextmanager
def shared(tree: Tree, wait_s: float) -> Iterator[None]:
    """Hold off an apply while the block reads; makes no file: where there is no lock, nobody has applied since the boot."""
    try:
        fd = os.open(tree.lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        _take(fd, fcntl.LOCK_SH, wait_s)
        yield
    finally:
        os.close(fd)


def _take(fd: int, kind: int, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                said = one_line(os.pread(fd, 300, 0).decode("utf-8", "replace").strip(), 200)
                raise Busy(
                    f"expected to be the one apply on this host, found another at work: {said or 'its holder is not known'}",
                    "wait for it to end; it ends by itself when its client is gone",
                ) from None
            time.sleep(_PAUSE_S)
