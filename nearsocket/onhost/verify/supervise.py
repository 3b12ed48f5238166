"""Work in a child that may hang in the kernel, so that whoever waits for the program (systemd) is answered in time."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, Callable, Optional

from nearsocket.model.text import fault
from nearsocket.onhost.collect import children
from nearsocket.onhost.tell import WARNING, status, tell


class Voice:
    """What a worker says; its parent has the streams."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def tell(self, line: str, level: str = "") -> None:
        """One line for the journal."""
        children.send(self.fd, ["tell", line, level])

    def status(self, line: str) -> None:
        """The line that `systemctl status` shows."""
        children.send(self.fd, ["status", line])


def within(limit_s: float, work: Callable[[Voice], int], what: str) -> Optional[int]:
    """The code that `work` returned, its words passed on; None where it had none in time or failed, which is said.

    A child that hangs in D state is left behind, killed as soon as the kernel lets it go.
    """

    def run(fd: int) -> None:
        voice = Voice(fd)
        try:
            code = work(voice)
        except Exception as error:  # nothing that goes wrong in a proof may end an engine
            voice.tell(f"{what} failed: {fault(error)}", WARNING)
            return
        children.send(fd, ["code", code])

    pid, fd = children.fork(run)
    code, rest, end = None, b"", time.monotonic() + limit_s
    poller = select.poll()
    poller.register(fd, select.POLLIN | select.POLLHUP)
    while True:
        left_s = end - time.monotonic()
        if left_s <= 0 or not poller.poll(left_s * 1000):
            tell(f"{what} gave no answer within {limit_s:g} s and was left alone", WARNING)
            children.kill_group(pid)
            break
        part = os.read(fd, 1 << 16)
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            code = _pass_on(json.loads(line), code)
        if not part:
            break
    os.close(fd)
    children.reap(pid)
    return code


def _pass_on(said: Any, code: Optional[int]) -> Optional[int]:
    if said[0] == "tell":
        tell(said[1], said[2])
    elif said[0] == "status":
        status(said[1])
    else:
        return int(said[1])
    return code
