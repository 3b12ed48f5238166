"""Starting one group of ranks, listening to it, looking at the host while it holds its communicator, and ending it for certain."""

from __future__ import annotations

import json
import os
import select
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import starts
from nearsocket.model.probe.order import to_line
from nearsocket.model.probe.starts import FOLDER, NAME, Row, Started, StartOrder
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.text import complaint, decode, one_line
from nearsocket.onhost.collect import children, command
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.probe.launcher import START
from nearsocket.onhost.probe.own import Program

#: Beyond the ranks' own limit, after which their parent ends them: for the image's start and the parent's last word.
_GRACE_S = 60.0
_WORDS_BYTES, _LINE_BYTES = 16 << 10, 1 << 20
_REMOVE_S = 20.0
#: `docker run` and `podman run` end with it where the fault is theirs: no such image, no such device, no GPU for a container.
_NO_CONTAINER = 125
#: How often it is seen to that whoever asked still listens: a connection that broke must not leave GPUs busy.
_PULSE_S = 1.0
GONE = "whoever asked is gone"
Look = Callable[[], Optional[Snapshot]]


@dataclass
class _Heard:
    """What the ranks' parent said so far."""

    rows: list[Row] = field(default_factory=list)
    facts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    capped_bytes: Optional[int] = None
    pids: tuple[int, ...] = ()
    failed: Optional[str] = None
    failed_rank: Optional[int] = None
    seen: Optional[Snapshot] = None
    lacks: bool = False


def run(order: StartOrder, program: Program, folder: Path, look: Look, gone: Callable[[], bool]) -> Started:
    """One start from its first process to its last. Whatever happens comes back as a result; nothing keeps running.

    `gone`: whether nobody waits for the result any more; the start ends then.
    """
    began = time.monotonic()
    heard = _Heard()
    words = b""
    try:
        process = _start(order, folder)
    except OSError as error:
        return Started(order.name, failed=f"expected to start {_argv(order, folder)[0]}, found: {error.strerror}")
    children.alive(process.pid)
    try:
        words = _talk(process, order, program, folder, heard, look, gone)
    finally:
        children.kill_group(process.pid)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        _forget(order)
        children.reap(process.pid)
    if heard.failed is None:
        heard.failed = starts.incomplete(order.ranks, heard.rows, heard.capped_bytes)
    return Started(
        order.name,
        tuple(heard.rows),
        heard.facts,
        heard.failed,
        heard.failed_rank,
        heard.capped_bytes,
        heard.pids,
        decode(words)[-4000:],
        round(time.monotonic() - began, 3),
        heard.seen,
        heard.lacks,
    )


def _argv(order: StartOrder, folder: Path) -> list[str]:
    words = order.argv or (order.python or sys.executable,)
    mine = [word.replace(FOLDER, str(folder)).replace(NAME, order.container) for word in words]
    return [*mine, "-B", "-c", START]


def _environment(order: StartOrder, folder: Path) -> dict[str, str]:
    return {name: value.replace(FOLDER, str(folder)) for name, value in order.ranks.environment.items()}


def _start(order: StartOrder, folder: Path) -> subprocess.Popen[bytes]:
    # LD_PRELOAD and the like count only from a program's start, so what runs bare gets its environment here already.
    mine = {**os.environ, **({} if order.argv else _environment(order, folder))}
    return subprocess.Popen(
        _argv(order, folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=mine,
        cwd="/",
    )


def _talk(
    process: subprocess.Popen[bytes],
    order: StartOrder,
    program: Program,
    folder: Path,
    heard: _Heard,
    look: Look,
    gone: Callable[[], bool],
) -> bytes:
    """Send, listen, look, end; the last of standard error comes back."""
    assert process.stdin and process.stdout and process.stderr
    ranks = {**order.ranks.to_json(), "environment": _environment(order, folder)}
    header = to_line({"size": len(program.data), "path": program.path, "order": ranks})
    sending = memoryview(header + program.data)
    end = time.monotonic() + order.ranks.limit_s + _GRACE_S
    kept, rest = b"", b""
    for pipe in (process.stdin, process.stdout, process.stderr):
        os.set_blocking(pipe.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stderr, selectors.EVENT_READ)
        reading = 2
        while reading:
            ready = selector.select(max(0.0, min(_PULSE_S, end - time.monotonic())))
            if time.monotonic() >= end or gone():
                late = f"no answer within {order.ranks.limit_s + _GRACE_S:g} s"
                heard.failed = heard.failed or (late if time.monotonic() >= end else GONE)
                return kept
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    sending = _send(process.stdin.fileno(), sending)
                    if not sending:
                        selector.unregister(process.stdin)
                    continue
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(key.fileobj)
                    reading -= 1
                elif key.fileobj is process.stderr:
                    kept = (kept + chunk)[-_WORDS_BYTES:]
                else:
                    *lines, rest = (rest + chunk)[-_LINE_BYTES:].split(b"\n")
                    for line in lines:
                        if _hear(line, heard):
                            heard.seen = look()
                            _send(process.stdin.fileno(), memoryview(b"end\n"))
    _settle(process, order, heard, kept, end)
    return kept


def reader_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    poller = select.poll()
    poller.register(1, 0)
    return bool(poller.poll(0))


def _send(fd: int, data: memoryview) -> memoryview:
    """What is left to send; nothing where nobody reads any more: the end of its output says why."""
    try:
        return data[os.write(fd, data[: 1 << 16]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]


def _hear(line: bytes, heard: _Heard) -> bool:
    """Take one event in; whether the group holds now and waits to be ended."""
    try:
        event = json.loads(line)
        if "row" in event:
            _hear_row(event["row"], heard)
        elif "facts" in event:
            heard.facts[int(event["rank"])] = dict(event["facts"])
            heard.capped_bytes = event["capped_bytes"]
        elif "failed" in event:
            heard.failed = one_line(str(event["failed"]["reason"]), 400)
            heard.failed_rank = event["failed"]["rank"]
            heard.lacks = bool(event["failed"].get("lacks"))
        elif "holding" in event:
            heard.pids = tuple(int(pid) for pid in event["holding"])
            return True
    except (ValueError, TypeError, KeyError, AttributeError):
        pass  # a line that is not ours; what is missing at the end is said then
    return False


def _hear_row(value: Any, heard: _Heard) -> None:
    """A row that cannot be read may be the one that says which sums were wrong: it ends the start's good name."""
    try:
        heard.rows.append(starts.row(value))
    except (ValueError, TypeError) as error:
        heard.failed = heard.failed or f"a rank said figures that cannot be read: {one_line(str(error), 200)}"


def _settle(process: subprocess.Popen[bytes], order: StartOrder, heard: _Heard, kept: bytes, end: float) -> None:
    """How it ended, where it has not said so itself."""
    try:
        code = process.wait(max(0.1, min(10.0, end - time.monotonic())))
    except subprocess.TimeoutExpired:
        code = 0  # its output is closed and its ranks are done: the group's end is the caller's
    if heard.failed is None and not heard.pids and order.container and code == _NO_CONTAINER:
        heard.failed = f"{order.runtime} started no container: {complaint(decode(kept), code)}"
        heard.lacks = True
    elif heard.failed is None and not heard.pids:
        last = [line for line in decode(kept).splitlines() if line.strip()]
        said = one_line(last[-1].strip(), 300) if last else "nothing said"
        how = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        heard.failed = f"the ranks' Python {how} before it measured: {said}"


def _forget(order: StartOrder) -> None:
    """No container of that name is left."""
    if not order.container:
        return
    try:
        command.run([order.runtime, "rm", "--force", "--volumes", order.container], _REMOVE_S)
    except (OSError, CommandTimeout):
        pass  # the ranks end by themselves: their input is closed


def environment_file(values: Mapping[str, str]) -> bytes:
    """The text of an `--env-file`. Raises NearsocketError for a value of several lines, which the grammar cannot hold."""
    for name, value in values.items():
        if "\n" in name + value or "=" in name:
            raise NearsocketError(f"environment: expected one line for {one_line(name, 60)}, found several")
    return "".join(f"{name}={value}\n" for name, value in sorted(values.items())).encode("utf-8", "surrogateescape")
