"""A rank on the lab's stand-in for NCCL: buffers, log and placement as NCCL makes them, numbers added up through those buffers.

What is real: the files in /dev/shm (or memory bound near, with cuMem), their pages' places, the ring, every sum. What is not:
GPUs and their speed. A lab's two nodes are equally fast, so a call takes as much longer as far pages cost on a real host.

NEARSOCKET_PROBE_FAULT, for tests: `wrong-sum` (the last rank spoils one element of every sum), `dead-rank` (the last rank ends
at the second size), `hang` (it never answers again there).
"""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from nearsocket.model.probe.order import Lacking, Place
from nearsocket.onhost.probe import pattern

#: 48 MiB over PCIe: 2.3 ms near, 5.7 ms far (FIELD_NOTES 1).
FAR_COST = 1.4
#: What its "GPU" has free: sizes up to 64 MiB.
FREE_BYTES = 320 << 20
#: A driver's version in this file (of the lab's faults) makes ranks under that driver take twice as long: an upgrade that costs.
SLOW_DRIVER = Path("/run/nearsocket-standin/faults/slow-driver")
FAULT = "NEARSOCKET_PROBE_FAULT"
_BLOCK_BYTES = 1 << 16


class StandinRank:
    """One rank. `peers`: a socket to every other rank."""

    def __init__(self, place: Place, rank: int, count: int, peers: Mapping[int, socket.socket]) -> None:
        try:
            engine, nccl = importlib.import_module("sglang.scheduler"), importlib.import_module("sglang.nccl")
            gpus, log = importlib.import_module("sglang.gpus"), importlib.import_module("sglang.nccllog")
        except ImportError as error:
            raise Lacking(
                f"backend standin: expected the lab's stand-in engine on PYTHONPATH, found none ({error})",
                "it is for the lab; on a GPU use the backend nccl",
            ) from None
        self.rank, self.count, self.place, self.nccl = rank, count, place, nccl
        self.peers = {number: engine.Channel(one) for number, one in peers.items()}
        node = place.node if place.node is not None else 0
        cpus = importlib.import_module("sglang.memory").node_cpus(node)
        self.gpu = gpus.Gpu(place.device, place.pci or f"0000:{0x10 + place.device:02x}:00.0", node, cpus)
        self.log = log.Log(dict(os.environ))
        self.fault = os.environ.get(FAULT, "") if rank == count - 1 else ""
        self.held: list[int] = []
        self.buffer = self.mine = self.expected = b""
        self.far = 0.0
        self.slow = 1.0 if _slow_driver() else 0.0
        self.sizes_seen: set[int] = set()

    def start(self) -> None:
        """Make the buffers, let the neighbours map them, take the names away: NCCL's own order."""
        for path in (f"/dev/nvidia{self.gpu.index}", "/dev/nvidiactl"):
            if Path(path).exists():  # held as a CUDA context holds them: the stand-in for NVML finds processes by that
                self.held.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        control = self.held[-1] if Path("/dev/nvidiactl").exists() else None
        one = self.nccl.Rank(self.rank, self.count, self.gpu, self.log, dict(os.environ), False, control)
        one.init()
        exports = one.allocate()
        backing = {id(export): shared for export, shared in one.own}
        for number, channel in self.peers.items():
            mine = [export for export in exports if export.to == number]
            fds = [backing[id(export)].fd for export in mine if export.path is None]
            channel.send({"exports": [vars(export) for export in mine]}, fds)
        for number, channel in sorted(self.peers.items()):
            told, fds = channel.receive()
            left = iter(fds)
            for values in told["exports"]:
                export = self.nccl.Export(**values)
                one.attach(number, export, None if export.path is not None else next(left))
        self._barrier()
        one.unlink()
        self.far = one.far_share()
        self.inbox = next(shared.mapped for export, shared in one.own if export.ring)
        self.outbox = next(shared.mapped for shared in one.imported if shared.ring)
        self.chunk = min(one.ring_size, len(self.inbox), len(self.outbox)) // 4096 * 4096
        self.one = one

    def facts(self) -> dict[str, Any]:
        """The version that it is like."""
        return {"nccl": str(self.log.version), "gpu": "stand-in", "pci": self.place.pci}

    def free_bytes(self) -> int:
        """A fixed number."""
        return FREE_BYTES

    def least(self, number: float) -> float:
        """Everyone tells everyone."""
        return min([number, *(float(told["number"]) for told in self._exchange({"number": number}))])

    def fill(self, size: int) -> None:
        """`i % PERIOD + rank` in lanes of 16 bits."""
        self._fault(size)
        elements = size // pattern.ELEMENT_BYTES
        self.buffer = self.mine = _lanes([pattern.value(i, self.rank) for i in range(pattern.PERIOD)], elements)
        self.expected = _lanes([pattern.total(i, self.count) for i in range(pattern.PERIOD)], elements)

    def zero(self) -> None:
        """Zeros."""
        self.buffer = self.expected = bytes(len(self.buffer))

    def wrong(self, zeros: bool) -> tuple[int, Optional[int]]:
        """Lane by lane in the blocks that are not equal."""
        _ = zeros  # `expected` is zeros then
        width, off = pattern.ELEMENT_BYTES, []
        for start in range(0, len(self.buffer), _BLOCK_BYTES):
            found, right = self.buffer[start : start + _BLOCK_BYTES], self.expected[start : start + _BLOCK_BYTES]
            if found != right:
                off += [
                    (start + at) // width for at in range(0, len(found), width) if found[at : at + width] != right[at : at + width]
                ]
        return (len(off), off[0]) if off else (0, None)

    def times(self, count: int) -> list[float]:
        """By the clock."""
        return [self._clocked() for _ in range(count)]

    def _clocked(self) -> float:
        began = time.perf_counter()
        parts = [self._sum(self.buffer[at : at + self.chunk]) for at in range(0, len(self.buffer), self.chunk)]
        self.buffer = b"".join(parts)
        # Every rank waits as long as the one with the most far pages: a ring is as slow as its slowest link.
        worst = -self.least(-self.far)
        time.sleep((time.perf_counter() - began) * (FAR_COST * worst + self.slow))
        if self.fault == "wrong-sum":
            self.buffer = self.buffer[:-2] + bytes([self.buffer[-2] ^ 1, self.buffer[-1]])
        return time.perf_counter() - began

    def _sum(self, part: bytes) -> bytes:
        """Once around the ring: write into the next rank's buffer, read from one's own, add. Lanes never run over."""
        total, block = int.from_bytes(part, "little"), part
        for _ in range(self.count - 1):
            self.outbox[: len(block)] = block
            self._barrier()
            block = bytes(self.inbox[: len(block)])
            self._barrier()
            total += int.from_bytes(block, "little")
        return total.to_bytes(len(part), "little")

    def _barrier(self) -> None:
        self._exchange({})

    def _exchange(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        for channel in self.peers.values():
            channel.send(value, [])
        return [channel.receive()[0] for channel in self.peers.values()]

    def _fault(self, size: int) -> None:
        self.sizes_seen.add(size)
        if len(self.sizes_seen) < 2:
            return
        if self.fault == "dead-rank":
            os._exit(1)
        while self.fault == "hang":
            time.sleep(60)


def _slow_driver() -> bool:
    try:
        loaded = Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
        return SLOW_DRIVER.read_text(encoding="ascii").strip() == loaded
    except OSError:
        return False


def _lanes(turn: list[int], elements: int) -> bytes:
    once = b"".join(number.to_bytes(pattern.ELEMENT_BYTES, "little") for number in turn)
    return (once * (-(-elements // len(turn))))[: elements * pattern.ELEMENT_BYTES]
