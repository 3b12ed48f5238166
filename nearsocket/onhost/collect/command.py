"""Running a command under a time limit, never waiting for one that hangs in the kernel."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.model.text import decode
from nearsocket.onhost.collect import children
from nearsocket.onhost.collect.files import CUT

CAP_BYTES = 4 << 20
#: A login without a shell's start-up files often lacks the sbin folders, where dkms, ldconfig and modinfo are.
_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandTimeout(Exception):
    """A command gave no answer in its time; the message names it."""


@dataclass(frozen=True)
class Output:
    """What a command said. `text` is its standard output, `error` its standard error's last line."""

    code: int
    text: str
    error: str


def run(argv: Sequence[str], limit_s: float) -> Output:
    """Run a command in its own session with no input and LC_ALL=C, for `limit_s` seconds at most (stretched).

    Raises FileNotFoundError or PermissionError where it cannot start, CommandTimeout where it does not end in time:
    its group is killed and nobody waits for it.
    """
    limit_s = children.stretched(limit_s)
    end = time.monotonic() + limit_s
    environ = dict(os.environ, LC_ALL="C", PATH=f"{os.environ.get('PATH', '')}:{_FOLDERS}".lstrip(":"))
    environ.pop("LANGUAGE", None)
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environ,
            cwd="/",
        )
    except FileNotFoundError:
        raise FileNotFoundError(f"{argv[0]} is not installed") from None
    children.alive(process.pid)
    if process.stdout is None or process.stderr is None:
        raise OSError(f"{argv[0]}: no pipes")
    kept: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    open_fds, sizes = set(kept), dict.fromkeys(kept, 0)
    poller = select.poll()
    for fd in kept:
        poller.register(fd, select.POLLIN | select.POLLHUP)
    while open_fds:
        ready = poller.poll(max(0.0, end - time.monotonic()) * 1000)
        if not ready:
            raise _timeout(process, argv, limit_s)
        for fd, _ in ready:
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                poller.unregister(fd)
                open_fds.discard(fd)
            elif sizes[fd] <= CAP_BYTES:
                kept[fd].append(chunk)
                sizes[fd] += len(chunk)
            elif time.monotonic() >= end:
                raise _timeout(process, argv, limit_s)
    try:
        code = process.wait(timeout=max(0.01, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise _timeout(process, argv, limit_s) from None
    children.gone(process.pid)
    out, err = (b"".join(parts) for parts in kept.values())
    text = decode(out) if len(out) <= CAP_BYTES else decode(out[:CAP_BYTES]) + CUT
    lines = decode(err).strip().splitlines()
    return Output(code, text, lines[-1][:300] if lines else "")


def _timeout(process: subprocess.Popen[bytes], argv: Sequence[str], limit_s: float) -> CommandTimeout:
    children.kill_group(process.pid)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    process.poll()
    return CommandTimeout(f"{' '.join(argv)[:80]}: no answer in {limit_s:g} s")


def source(argv: Sequence[str], limit_s: float) -> Source:
    """A command's standard output as a source's text; status error with the reason where it failed."""
    output = run(argv, limit_s)
    if output.code == 0:
        return Source(SourceStatus.OK, text=output.text)
    reason = f"{' '.join(argv)[:80]}: exit code {output.code}" + (f": {output.error}" if output.error else "")
    return Source(SourceStatus.ERROR, text=output.text or None, reason=reason)
