"""The ranks of one engine, seen from its server: their processes, and the steps in which NCCL brings them together."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from . import faults
from .gpus import Gpu
from .scheduler import Channel


class RankError(RuntimeError):
    """A rank did not do what it was asked, or is gone."""


class Group:
    """All ranks of one tensor-parallel group."""

    def __init__(self, gpus: list[Gpu], environ: Mapping[str, str]) -> None:
        shares = [list(range(len(gpus)))] if faults.is_on("legacy") else [[rank] for rank in range(len(gpus))]
        self.lock = threading.Lock()
        self.connected = False
        self.members = [_Member(ranks, [gpus[rank] for rank in ranks], len(gpus), environ) for ranks in shares]
        self.lazy = False

    def init(self) -> None:
        """Make the communicator; with cuMem off it connects now, else at the first request."""
        answers = self._all({"do": "init"})
        self.lazy = bool(answers[0][0]["lazy"])
        if not self.lazy:
            self.connect()

    def load(self, path: str) -> int:
        """Let every rank read its share of the weights; returns the bytes."""
        return sum(answer["bytes"] for answer, _fds in self._all({"do": "load", "path": path}))

    def connect(self) -> None:
        """Make all buffers, let the neighbours map them, take the files' names away."""
        exports: list[tuple[int, dict[str, Any], list[int]]] = []
        for answer, fds in self._all({"do": "allocate"}):
            left = iter(fds)
            for owner, export in answer["exports"]:
                exports.append((owner, export, [] if export["path"] is not None else [next(left)]))
        for member in self.members:
            mine = [one for one in exports if one[1]["to"] in member.ranks]
            member.ask(
                {"do": "attach", "exports": [[owner, export] for owner, export, _fds in mine]},
                [fd for one in mine for fd in one[2]],
            )
        self._all({"do": "unlink"})
        for _owner, _export, fds in exports:
            for fd in fds:
                os.close(fd)
        self.connected = True

    def answer(self, prompt: int, new: int) -> float:
        """Let the ranks work on a request of so many tokens; returns the largest share of ring pages that a rank finds far."""
        with self.lock:
            if not self.connected:
                self.connect()
            return max(float(answer["far_share"]) for answer, _fds in self._all({"do": "answer", "prompt": prompt, "new": new}))

    def _all(self, order: dict[str, Any]) -> list[tuple[dict[str, Any], list[int]]]:
        for member in self.members:
            member.send(order, [])
        return [member.receive() for member in self.members]


class _Member:
    """One rank's process and the socket to it."""

    def __init__(self, ranks: list[int], gpus: list[Gpu], count: int, environ: Mapping[str, str]) -> None:
        self.ranks = ranks
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang.scheduler", str(theirs.fileno())], pass_fds=[theirs.fileno()], env=dict(environ)
        )
        theirs.close()
        self.channel = Channel(ours)
        devices = [f"/dev/nvidia{gpu.index}" for gpu in gpus]
        self.send({"ranks": ranks, "gpus": [dataclasses.asdict(gpu) for gpu in gpus], "count": count, "devices": devices}, [])

    def send(self, order: dict[str, Any], fds: list[int]) -> None:
        try:
            self.channel.send(order, fds)
        except OSError as error:
            raise RankError(f"rank {self.ranks[0]} is gone: {error.strerror}") from None

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            answer, fds = self.channel.receive()
        except (EOFError, OSError):
            raise RankError(f"rank {self.ranks[0]} is gone") from None
        if "error" in answer:
            raise RankError(f"rank {self.ranks[0]}: {answer['error']}")
        return answer, fds

    def ask(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        self.send(order, fds)
        return self.receive()[0]
