"""Work in a child that may hang in the kernel, so that whoever waits for the program (systemd) is answered in time."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any, Callable

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


def within(limit_s: float, work: Callable[[Voice], Any], what: str) -> Any:
    """What `work` returned (JSON's own values), its words passed on; None where it had none in time or failed, which is said.

    A child that hangs in D state is left behind, killed as soon as the kernel lets it go.
    """

    def run(fd: int) -> None:
        voice = Voice(fd)
        try:
            value = work(voice)
        except Exception as error:  # nothing that goes wrong in a proof may end an engine
            voice.tell(f"{what} failed: {fault(error)}", WARNING)
            return
        children.send(fd, ["value", value])

    pid, fd = children.fork(run)
    value, rest, end = None, b"", time.monotonic() + limit_s
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
            value = _pass_on(json.loads(line), value)
        if not part:
            break
    os.close(fd)
    children.reap(pid)
    return value


def _pass_on(said: Any, value: Any) -> Any:
    if said[0] == "tell":
        tell(said[1], said[2])
    elif said[0] == "status":
        status(said[1])
    else:
        return said[1]
    return value
