"""A child process with a deadline, a cap on its output, and an end: no pipe and no child outlives the call."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

_CHUNK_BYTES = 1 << 16
_STDERR_CAP_BYTES = 64 << 10
#: How long a child that was sent SIGKILL is waited for; one in D state is left to the kernel.
_BURIAL_S = 1.0
#: How long standard error is read on after the child's end: a ControlPersist master of ssh keeps it open for good.
_AFTERGLOW_S = 0.2


@dataclass(frozen=True)
class Ended:
    """How a child ended. `code` is negative for a signal and None where it had to be killed at the deadline."""

    code: int | None
    stdout: bytes
    stderr: bytes
    overflow: bool
    took_s: float


class Children:
    """The running children of one audit, so that an interrupt can end them all, each by its process group's id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def add(self, child: subprocess.Popen[bytes]) -> None:
        """Remember a child; after `end_all` it is ended at once."""
        with self._lock:
            self._running.add(child)
            closed = self._closed
        if closed:
            end_group(child)

    def remove(self, child: subprocess.Popen[bytes]) -> None:
        """Forget a child that has ended."""
        with self._lock:
            self._running.discard(child)

    def end_all(self) -> None:
        """End every running child and every later one."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for child in running:
            end_group(child)

    @property
    def closed(self) -> bool:
        """Whether `end_all` was called."""
        return self._closed


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child and what it started (ProxyJump's own ssh, for one): its process group, by id."""
    if child.returncode is not None:
        return  # reaped: the id may be another's by now
    try:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(0.3)
    except subprocess.TimeoutExpired:
        pass  # it does not listen; SIGKILL follows
    except ProcessLookupError:
        return
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # the whole group is gone already


def run(
    args: Sequence[str],
    stdin: bytes,
    timeout_s: float,
    children: Children,
    largest_bytes: int,
    environ: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command (no shell) with that standard input, for `timeout_s` seconds and `largest_bytes` of output at most.

    Raises OSError where it cannot be started.
    """
    began = time.monotonic()
    child = subprocess.Popen(
        args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=environ
    )
    children.add(child)
    try:
        talk = _Talk(child, stdin, largest_bytes)
        finished = talk.until(began + timeout_s)
        if not finished:
            end_group(child)
        try:
            code: int | None = child.wait(_BURIAL_S)
        except subprocess.TimeoutExpired:
            code = None
        return Ended(code if finished else None, bytes(talk.stdout), bytes(talk.stderr), talk.overflow, time.monotonic() - began)
    finally:
        end_group(child)
        children.remove(child)
        for pipe in (child.stdin, child.stdout, child.stderr):
            _close(pipe)


def _close(pipe: IO[bytes] | None) -> None:
    try:
        if pipe is not None:
            pipe.close()
    except OSError:
        pass  # the other end went first


class _Talk:
    """Feeds a child and reads it, without ever blocking on one of its pipes."""

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes, largest_bytes: int) -> None:
        assert child.stdin and child.stdout and child.stderr
        self.child, self.pending, self.largest = child, memoryview(stdin), largest_bytes
        self.stdout, self.stderr, self.overflow = bytearray(), bytearray(), False
        self.selector = selectors.DefaultSelector()
        for pipe, events in (
            (child.stdin, selectors.EVENT_WRITE),
            (child.stdout, selectors.EVENT_READ),
            (child.stderr, selectors.EVENT_READ),
        ):
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, events)

    def until(self, deadline: float) -> bool:
        """Talk until the child has ended and its output is read; False at the deadline or where it says too much."""
        with self.selector:
            ended_at: float | None = None
            while self.selector.get_map():
                now = time.monotonic()
                if ended_at is None and self.child.poll() is not None:
                    ended_at = now
                if ended_at is not None and now > ended_at + _AFTERGLOW_S:
                    return True
                if now >= deadline or self.overflow:
                    return False
                for key, _ in self.selector.select(min(0.1, deadline - now)):
                    self._turn(key.fileobj)
            return self._ends_by(deadline)

    def _ends_by(self, deadline: float) -> bool:
        """Its pipes are closed; wait for its end."""
        try:
            self.child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _turn(self, pipe: object) -> None:
        if pipe is self.child.stdin:
            self._write()
            return
        source = self.child.stdout if pipe is self.child.stdout else self.child.stderr
        assert source
        try:
            chunk = os.read(source.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.selector.unregister(source)
        elif source is self.child.stdout:
            self.stdout += chunk
            self.overflow = len(self.stdout) > self.largest
        else:
            self.stderr += chunk[: _STDERR_CAP_BYTES - len(self.stderr)]

    def _write(self) -> None:
        assert self.child.stdin
        try:
            sent = os.write(self.child.stdin.fileno(), self.pending[:_CHUNK_BYTES])
            self.pending = self.pending[sent:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.pending = self.pending[:0]  # it ended without reading on; its code and words say why
        if not self.pending:
            self.selector.unregister(self.child.stdin)
            _close(self.child.stdin)
