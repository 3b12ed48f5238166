"""Filling a node with page cache, as reading a model's weights does: a file of holes, read ahead by a task that is bound there."""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.parsers import meminfo, zoneinfo
from nearsocket.model.probe.starts import FILL_S
from nearsocket.onhost.collect import children
from nearsocket.onhost.collect.files import read_text
from nearsocket.onhost.probe.memory import bind_memory

#: Read ahead at a time: the kernel takes no more in one call (its default read-ahead).
_STEP_BYTES = 128 << 10
#: Beyond what is free, so that the last page is taken.
_BEYOND_BYTES = 128 << 20
_WHERE = "/var/tmp"  # noqa: S108 - a file with a random name, opened and unlinked at once; /tmp may be memory itself


@contextlib.contextmanager
def filled(nodes: Sequence[int]) -> Iterator[None]:
    """These nodes have no free memory but page cache while this lasts; the cache goes with it. Raises NearsocketError."""
    files = []
    try:
        for node in nodes:
            files.append(_fill(node))
        yield
    finally:
        for fd in files:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _fill(node: int) -> int:
    """The file whose pages hold the node."""
    fd, name = tempfile.mkstemp(prefix="nearsocket-fill-", dir=_WHERE)
    Path(name).unlink()
    try:
        size = _free_bytes(node) + _BEYOND_BYTES
        os.ftruncate(fd, size)
        pid, reading = children.fork(lambda out: _read_ahead(fd, size, node, out))
        said = _answer(reading, pid)
    except OSError as error:
        os.close(fd)
        raise NearsocketError(f"expected to fill node {node} with page cache, found: {error.strerror or error}") from None
    if said != b"done":
        os.close(fd)
        raise NearsocketError(
            f"expected to fill node {node} with page cache, found: {said.decode('ascii', 'replace') or 'no answer in time'}"
        )
    still = _still_free(node)
    if still is not None:
        os.close(fd)
        raise NearsocketError(
            f"expected to fill node {node} with page cache, found {still} of it still free after a file of {size >> 20:,} MiB",
            f"{_WHERE} must be on a file system with page cache (not on tmpfs); --fill fills nothing here",
        )
    return fd


def _still_free(node: int) -> Optional[str]:
    """How much the node has free although it should have none, in words; None where it is full."""
    free = _free_bytes(node)
    kept = zoneinfo.kept_pages(read_text("/proc/zoneinfo"), node) * os.sysconf("SC_PAGE_SIZE")
    return f"{free >> 20:,} MiB" if free > kept + _BEYOND_BYTES else None


def _free_bytes(node: int) -> int:
    text = read_text(f"/sys/devices/system/node/node{node}/meminfo")
    free = meminfo.values(text).get("MemFree")
    if free is None:
        raise OSError(f"node {node} does not tell its free memory")
    return free


def _read_ahead(fd: int, size: int, node: int, out: int) -> None:
    """In a child: its policy, and so the pages' node, is its own."""
    try:
        bind_memory((node,))
        end = time.monotonic() + FILL_S
        for start in range(0, size, _STEP_BYTES):
            os.posix_fadvise(fd, start, _STEP_BYTES, os.POSIX_FADV_WILLNEED)
            if time.monotonic() > end:
                os.write(out, f"not done in {FILL_S:g} s".encode())
                return
        os.write(out, b"done")
    except NearsocketError as error:
        os.write(out, error.message.encode("ascii", "replace")[:300])


def _answer(reading: int, pid: int) -> bytes:
    poller = select.poll()
    poller.register(reading, select.POLLIN | select.POLLHUP)
    try:
        return os.read(reading, 4096) if poller.poll((FILL_S + 5) * 1000) else b""
    finally:
        children.kill_group(pid)
        os.close(reading)
        children.reap(pid)
