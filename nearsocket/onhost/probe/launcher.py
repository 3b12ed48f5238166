"""The ranks' parent: runs in the engine's image with the Python there, forks one process a GPU, and outlives none of them.

Its standard input is the order (one line of JSON), the program, and then one line that ends it; its standard output one line of
JSON an event. It ends, and the ranks with it, when the input closes, when the time is over, or when a rank fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import order as orders
from nearsocket.model.probe.order import RanksOrder, to_line
from nearsocket.model.text import fault
from nearsocket.onhost.collect import buffers
from nearsocket.onhost.probe import child

_PR_SET_PDEATHSIG = 1
#: How long a group is kept once it is done, where nobody says that it may go.
_HOLD_S = 120.0

#: What `python3 -c` runs: the program comes from standard input into memory, or from its path; never from the current folder.
START = (
    "import sys,os,json;sys.path[:]=[p for p in sys.path if p];f=os.fdopen(0,'rb',0,closefd=False);h=json.loads(f.readline());"
    "n=h['size'];fd=os.memfd_create('nearsocket') if n else -1\n"
    "while n:\n"
    " b=f.read(min(n,1<<20))\n"
    " if not b: sys.exit('nearsocket: the program was cut')\n"
    " n-=len(b);os.write(fd,b)\n"
    "sys.path.insert(0,'/proc/self/fd/%d'%fd if h['size'] else h['path'])\n"
    "from nearsocket.onhost.probe.launcher import main\n"
    "main(h['order'])"
)


def main(value: Any) -> NoReturn:
    """Run the order and end the process: 0 done, 2 failed and said so."""
    out = os.dup(1)
    os.dup2(2, 1)  # libraries print what they like; only events may reach the reader

    def say(event: Any) -> None:
        data = memoryview(to_line(event))
        try:
            while data:
                data = data[os.write(out, data) :]
        except BrokenPipeError:
            os._exit(2)  # nobody listens; the ranks die with this process

    code = 2
    try:
        code = _Group(orders.from_json(value), say).run()
    except NearsocketError as error:
        say({"failed": {"rank": None, "reason": error.message}})
    except Exception as error:  # the outside world's faults are one line
        say({"failed": {"rank": None, "reason": fault(error)}})
    os._exit(code)


@dataclass
class _Member:
    """One rank as its parent sees it. `at`: what it said last about where it is."""

    rank: int
    pid: int
    reading: int
    rest: bytes = b""
    at: str = "its start"
    done: bool = False


class _Group:
    """All ranks of one start."""

    def __init__(self, order: RanksOrder, say: Any) -> None:
        self.order, self.say = order, say
        self.members: list[_Member] = []
        self.end = time.monotonic() + order.limit_s

    def run(self) -> int:
        """Start, pass on what the ranks say, hold, end."""
        os.environ.update(self.order.environment)
        port = _free_port()
        count = len(self.order.ranks)
        pairs = {(a, b): socket.socketpair() for a in range(count) for b in range(a + 1, count)}
        keep, release = os.pipe()
        try:
            for number in range(count):
                self.members.append(self._fork(number, port, pairs, keep, release))
            for one in pairs.values():
                for end in one:
                    end.close()
            failure = self._listen()
            if failure is not None:
                self.say({"failed": failure})
                return 2
            self.say({"holding": [member.pid for member in self.members]})
            self._wait_for_word()
            return 0
        finally:
            os.close(release)
            self._kill()

    def _fork(self, number: int, port: int, pairs: Mapping[tuple[int, int], Any], keep: int, release: int) -> _Member:
        reading, writing = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.close(writing)
            return _Member(number, pid, reading)
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() == parent:
                os.close(release)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                held = child.live(self.order, number, port, pairs, writing)
                os.read(keep, 1)  # until the parent closes it: the communicator is there to be looked at
                del held
        finally:
            os._exit(0)  # the library's own end may wait for a peer that has gone

    def _listen(self) -> Optional[dict[str, Any]]:
        """Until every rank is done; or why one of them failed."""
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            for member in self.members:
                selector.register(member.reading, selectors.EVENT_READ, member)
            while not all(member.done for member in self.members):
                ready = selector.select(max(0.0, self.end - time.monotonic()))
                if not ready and time.monotonic() >= self.end:
                    late = next(member for member in self.members if not member.done)
                    return {"rank": late.rank, "reason": f"not done within {self.order.limit_s:g} s; last heard at {late.at}"}
                for key, _ in ready:
                    if key.data is None:
                        if not os.read(0, 4096):
                            return {"rank": None, "reason": "whoever started the ranks is gone"}
                        continue
                    failure = self._hear(key.data, selector)
                    if failure is not None:
                        return failure
        return None

    def _hear(self, member: _Member, selector: selectors.BaseSelector) -> Optional[dict[str, Any]]:
        chunk = os.read(member.reading, 1 << 16)
        if not chunk:
            selector.unregister(member.reading)
            if member.done:
                return None
            return {"rank": member.rank, "reason": f"{_how_ended(member.pid)} at {member.at}"}
        *lines, member.rest = (member.rest + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if "at" in event:
                member.at = event["at"]
            elif "error" in event:
                lacks = bool(event.get("lacks"))
                return {"rank": member.rank, "reason": f"{event['error']} at {member.at}", "lacks": lacks}
            elif "done" in event:
                member.done = True
            else:
                self.say({**event, "rank": member.rank})
        return None

    def _wait_for_word(self) -> None:
        """A line or the end of standard input; not for ever."""
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.select(min(_HOLD_S, max(0.0, self.end - time.monotonic())))

    def _kill(self) -> None:
        """End the ranks; a file whose name a rank had no time to take away would keep its memory for good."""
        named = {path for member in self.members for path in _named_buffers(member.pid)}
        for member in self.members:
            try:
                os.kill(member.pid, signal.SIGKILL)
                os.waitpid(member.pid, 0 if member.done else os.WNOHANG)
            except OSError:
                pass  # it is gone already
        for path in named:
            with contextlib.suppress(OSError):
                Path(path).unlink()


def _named_buffers(pid: int) -> list[str]:
    """The nccl- files that this rank maps and that still have their names."""
    try:
        return [one.file for one in buffers.ranges(buffers.lines(f"/proc/{pid}/maps")) if not one.deleted]
    except OSError:
        return []


def _how_ended(pid: int) -> str:
    for _ in range(100):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            return f"ended by signal {number}" if number else f"ended with code {os.WEXITSTATUS(status)}"
        time.sleep(0.01)
    return "closed its pipe"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    sys.exit("nearsocket: the ranks are started by `nearsocket probe`")
