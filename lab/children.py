"""Running other programs so that an interrupted lab leaves none of them behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.say import clean

#: Seconds that a child gets to clean up after itself (mmdebstrap unmounts and removes its folder) before it is killed.
GRACE_S = 20


def end_group(child: subprocess.Popen[str], grace_s: float = GRACE_S) -> None:
    """Ask the child's process group to end, wait, then kill what is left of it."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if _gone(child, sign):
            return
        limit = time.monotonic() + grace_s
        while time.monotonic() < limit:
            if _gone(child, 0):
                return
            time.sleep(0.02)


def _gone(child: subprocess.Popen[str], sign: int) -> bool:
    child.poll()  # a leader that is not waited for would keep its group
    try:
        os.killpg(child.pid, sign)
    except ProcessLookupError:
        return True
    return False


def stream(
    argv: Sequence[str], on_line: Callable[[str], None], env: dict[str, str] | None = None, cwd: Path | None = None
) -> tuple[int, list[str]]:
    """Run a program, hand over each line of its output, and return its code and its last lines.

    It runs in a process group of its own: a Ctrl-C reaches the lab first, and the lab ends the whole group.
    """
    child = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    tail: list[str] = []
    assert child.stdout is not None
    try:
        for line in child.stdout:
            text = clean(line)
            if text:
                on_line(text)
                tail = [*tail[-39:], text]
        return child.wait(), tail
    except BaseException:
        end_group(child)
        raise
    finally:
        child.stdout.close()


def reason(tail: Sequence[str]) -> str:
    """The line that says best why a program failed: a full disk, what precedes the first error, that, the last."""
    for line in tail:
        if "No space left" in line:
            return line
    for before, line in zip(["", *tail], tail, strict=False):
        if line.startswith(("E:", "error:")):
            return before if before and not before.startswith(("I:", "W:")) else line
    return tail[-1] if tail else "it said nothing"
