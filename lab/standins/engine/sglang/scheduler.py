"""A rank's process: it takes orders over a socket (its descriptor number is the only argument), one JSON object a line."""

from __future__ import annotations

import array
import dataclasses
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import faults, weights
from .gpus import Gpu
from .nccl import Export, Rank
from .nccllog import Log
from .title import set_title

#: Prompt tokens a second with all buffers near, and how much longer a prompt takes with all of them far (6,009 and 4,264).
NEAR_TOKENS_S = 6000.0
FAR_COST = 0.41
#: Tokens a second of the answer; exchanges of that size do not depend on the buffers' bandwidth.
ANSWER_TOKENS_S = 400.0


class Channel:
    """Orders and answers, with descriptors beside them where cuMem's memory is passed on."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rest = b""

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next object and its descriptors. Raises EOFError where the other side is gone."""
        fds: array.array[int] = array.array("i")
        while b"\n" not in self._rest:
            data, extra, _flags, _address = self.sock.recvmsg(1 << 16, socket.CMSG_SPACE(64 * fds.itemsize))
            for level, kind, content in extra:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
            if not data:
                raise EOFError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line), list(fds)

    def send(self, value: dict[str, Any], fds: list[int]) -> None:
        """Send one object, the descriptors with its first byte."""
        data = json.dumps(value).encode() + b"\n"
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.sock.sendmsg([data], extra)
        self.sock.sendall(data[sent:])


class Scheduler:
    """The orders that a rank's process obeys; in the legacy fault it holds several ranks."""

    def __init__(self, order: dict[str, Any]) -> None:
        environ = dict(os.environ)
        set_title(f"sglang::scheduler_TP{order['ranks'][0]}")
        # The descriptors of the devices are held as a CUDA context holds them: NVML's stand-in finds its processes by them.
        self.devices = [os.open(path, os.O_RDWR) for path in order["devices"] if Path(path).exists()]
        control = os.open("/dev/nvidiactl", os.O_RDWR) if Path("/dev/nvidiactl").exists() else None
        log = Log(environ)
        self.ranks = [
            Rank(rank, order["count"], Gpu(**gpu), log, environ, len(order["ranks"]) > 1, control)
            for rank, gpu in zip(order["ranks"], order["gpus"])
        ]

    def obey(self, order: dict[str, Any], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
        """Do what is asked; the answer and its descriptors."""
        what = order["do"]
        if what == "init":
            for rank in self.ranks:
                rank.init()
            return {"lazy": self.ranks[0].cumem}, []
        if what == "load":
            return {"bytes": weights.read(order["path"], self.ranks[0].rank, self.ranks[0].count)}, []
        if what == "allocate":
            made = [(rank.rank, export) for rank in self.ranks for export in rank.allocate()]
            passed = [shared.fd for rank in self.ranks for _export, shared in rank.own if shared.fd is not None]
            return {"exports": [[owner, dataclasses.asdict(export)] for owner, export in made]}, passed
        if what == "attach":
            self._attach(order["exports"], fds)
            return {}, []
        if what == "unlink":
            for rank in self.ranks:
                rank.unlink()
            return {}, []
        if what == "answer":
            far = max(rank.far_share() for rank in self.ranks)
            time.sleep(order["prompt"] / NEAR_TOKENS_S * (1 + FAR_COST * far) + order["new"] / ANSWER_TOKENS_S)
            return {"far_share": far}, []
        raise ValueError(f"unknown order {what!r}")

    def _attach(self, exports: list[Any], fds: list[int]) -> None:
        left = iter(fds)
        for owner, export in exports:
            one = Export(**export)
            fd = None if one.path is not None else next(left)
            rank = next(rank for rank in self.ranks if rank.rank == one.to)
            rank.attach(owner, one, fd)


def _die_when_told(scheduler: Scheduler) -> None:
    """End the process where the fault names a connected rank of it. The server stays, as one that hangs does."""
    while True:
        dead = faults.number("dead-rank")
        if dead is not None and any(rank.rank == dead and rank.connected for rank in scheduler.ranks):
            os._exit(1)
        time.sleep(0.2)


def main() -> int:
    """Obey until the server is gone."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    order, _fds = channel.receive()
    scheduler = Scheduler(order)
    threading.Thread(target=_die_when_told, args=(scheduler,), daemon=True).start()
    while True:
        try:
            order, fds = channel.receive()
        except EOFError:
            return 0
        try:
            answer, passed = scheduler.obey(order, fds)
        except OSError as error:
            answer, passed = {"error": f"{order['do']}: {error.strerror}"}, []
        channel.send(answer, passed)


if __name__ == "__main__":
    sys.exit(main())
