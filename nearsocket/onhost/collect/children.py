"""Forked children that may hang in the kernel: they report over a pipe, and the parent never waits for one.

A child in D state cannot be killed and cannot be waited for; it is left behind. It holds neither standard output nor any
other pipe of the parent, so that whoever reads the program's output sees its end.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, TypeVar

Item = TypeVar("Item")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Patience:
    """How many times its usual time each part may take, on a host that was given more time as a whole."""

    factor = 1.0


def be_patient(factor: float) -> None:
    """Let this process, and those that it forks, wait so many times longer for each part (a command, a step); at least once."""
    _Patience.factor = max(1.0, factor)


def stretched(limit_s: float) -> float:
    """A part's usual limit, times this process's patience."""
    return limit_s * _Patience.factor


#: Process groups that this process started and has not seen end: killed when it is told to stop.
_live: set[int] = set()


def alive(group: int) -> None:
    """Note a process group to be killed with this process."""
    _live.add(group)


def gone(group: int) -> None:
    """Forget a process group that ended."""
    _live.discard(group)


def kill_group(group: int) -> None:
    """Kill a process group; one that is gone already is fine."""
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass  # gone, or not ours any more: nothing to kill
    gone(group)


def _stop(_signum: int, _frame: object) -> None:
    for group in list(_live):
        kill_group(group)
    os._exit(1)


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """Fork a child that runs `work(fd)` and ends; its process number and the pipe's reading end come back.

    The child leads its own session, has no standard streams, and dies with its parent.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writing)
        alive(pid)
        return pid, reading
    try:
        _live.clear()
        os.setsid()
        signal.signal(signal.SIGTERM, _stop)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os.close(reading)
        if os.getppid() == parent:
            work(writing)
    finally:
        os._exit(0)


def reap(pid: int) -> Optional[int]:
    """A child's wait status without waiting; None where it has not ended."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if not found:
        return None
    gone(pid)
    return status


def send(fd: int, value: Any) -> None:
    """Write a value as one line of JSON."""
    data = memoryview(json.dumps(value).encode("ascii") + b"\n")
    while data:
        data = data[os.write(fd, data) :]


@dataclass
class Stepped:
    """What came of one item: its parts, merged, and the reason where reading it stopped early."""

    parts: dict[str, Any] = field(default_factory=dict)
    reason: Optional[str] = None
    hung: bool = False


def stepwise(
    items: Sequence[Item], read: Callable[[Item], Iterator[dict[str, Any]]], limit_s: float, deadline: float
) -> list[Stepped]:
    """Read items one after the other in a child; each step (a `yield`) of each item has `limit_s` seconds, stretched.

    Where a step hangs the child is left behind, the item keeps the parts that it yielded before, and a new child goes on
    with the next item. `deadline` (time.monotonic) ends the whole; items not reached say so.
    """
    limit_s = stretched(limit_s)
    results = [Stepped() for _ in items]
    next_item, hung = 0, 0
    while next_item < len(items):
        if time.monotonic() >= deadline:
            for result in results[next_item:]:
                result.reason = "not reached within the time limit"
            break
        # Many hung processes are one fault: after a few, less patience keeps the whole within its limit.
        patience_s = limit_s if hung < 5 else limit_s / 5
        next_item = _run(items, read, results, next_item, patience_s, deadline)
        hung += 1
    return results


def _run(
    items: Sequence[Item],
    read: Callable[[Item], Iterator[dict[str, Any]]],
    results: list[Stepped],
    first: int,
    limit_s: float,
    deadline: float,
) -> int:
    def work(fd: int) -> None:
        for index in range(first, len(items)):
            try:
                for part in read(items[index]):
                    send(fd, [index, part])
                send(fd, [index, None])
            except (OSError, ValueError, LookupError) as error:
                send(fd, [index, None, f"{type(error).__name__}: {error}"])

    pid, fd = fork(work)
    poller = select.poll()
    poller.register(fd, select.POLLIN | select.POLLHUP)
    current, rest, ended = first, b"", False
    while current < len(items):
        wait_s = min(limit_s, deadline - time.monotonic())
        if wait_s <= 0 or not poller.poll(wait_s * 1000):
            kill_group(pid)
            results[current].hung = True
            results[current].reason = f"no answer in {limit_s:g} s" if wait_s == limit_s else "the time limit passed"
            break
        chunk = os.read(fd, 1 << 20)
        if not chunk:
            ended = True
            results[current].reason = "the reader ended early"
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            message = json.loads(line)
            current = message[0]
            if message[1] is not None:
                results[current].parts.update(message[1])
                continue
            results[current].reason = message[2] if len(message) > 2 else None
            current += 1
    os.close(fd)
    if current >= len(items) or ended:
        gone(pid)
    reap(pid)
    return current + 1 if current < len(items) else current
