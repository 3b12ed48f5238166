"""A rank on torch.distributed, with NCCL on a GPU or gloo on the CPU: the libraries of the engine's own image."""

from __future__ import annotations

import ctypes
import datetime
import importlib
import os
import time
from typing import Any, Optional

from nearsocket.model.probe import order
from nearsocket.model.probe.order import Lacking, Place
from nearsocket.model.text import fault
from nearsocket.onhost.probe.pattern import PERIOD

#: Calls that are queued at once: with their events, well below the 1,024 launches that a CUDA stream takes before it blocks.
QUEUE = 64
#: Cycles of the GPU for each of them to be launched meanwhile: about 0.1 ms at 2 GHz; launching takes half of that.
HOLD_CYCLES = 200_000


class TorchRank:
    """One rank. `port`: where the ranks meet on the loopback address; `limit_s` is the library's own limit too."""

    def __init__(self, kind: order.Backend, place: Place, rank: int, count: int, port: int, limit_s: float) -> None:
        self.kind, self.place, self.rank, self.count, self.port, self.limit_s = kind, place, rank, count, port, limit_s
        self.torch: Any = None
        self.device: Any = None
        self.buffer: Any = None
        self.expected: Any = None

    @property
    def on_gpu(self) -> bool:
        """Whether buffers are in a GPU's memory."""
        return self.kind is order.Backend.NCCL

    def start(self) -> None:
        """Join the group. Raises Lacking where there is no torch or no such GPU, else what torch raises."""
        try:
            self.torch = importlib.import_module("torch")
        except (ImportError, OSError) as error:
            raise Lacking(f"expected torch in the ranks' Python, found none ({fault(error, 120)})") from None
        if self.on_gpu:
            seen = self.torch.cuda.device_count()
            if self.place.device >= seen:
                raise Lacking(f"expected torch to see GPU {self.place.device}, found {seen} GPUs")
            self.torch.cuda.set_device(self.place.device)
            self.device = self.torch.device("cuda", self.place.device)
        else:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            self.device = self.torch.device("cpu")
            self.torch.set_num_threads(1)
        distributed = importlib.import_module("torch.distributed")
        distributed.init_process_group(
            self.kind.value,
            init_method=f"tcp://127.0.0.1:{self.port}",
            rank=self.rank,
            world_size=self.count,
            timeout=datetime.timedelta(seconds=self.limit_s),
        )

    def facts(self) -> dict[str, Any]:
        """Versions and the GPU."""
        found: dict[str, Any] = {"torch": str(self.torch.__version__)}
        if self.on_gpu:
            found["cuda"] = self.torch.version.cuda
            found["nccl"] = _nccl() or ".".join(map(str, self.torch.cuda.nccl.version()))
            found["gpu"] = self.torch.cuda.get_device_name()
            found["pci"] = _pci(self.torch.cuda.get_device_properties(self.device))
        return found

    def free_bytes(self) -> int:
        """The GPU's; on the CPU, a fixed 4 GiB."""
        if not self.on_gpu:
            return 4 << 30
        return int(self.torch.cuda.mem_get_info()[0])

    def least(self, number: float) -> float:
        """By an all-reduce of one number."""
        held = self.torch.tensor([number], dtype=self.torch.float64, device=self.device)
        self.torch.distributed.all_reduce(held, op=self.torch.distributed.ReduceOp.MIN)
        return float(held.item())

    def fill(self, size: int) -> None:
        """`i % PERIOD + rank` in bf16, and the sum beside it to compare with."""
        elements = size // 2
        if self.buffer is None or self.buffer.numel() != elements:
            self.buffer = self.expected = None
            # In bytes, which hold every number on the way: int64 would take four times the buffer.
            turn = self.torch.arange(PERIOD, device=self.device, dtype=self.torch.uint8)
            turn = turn.repeat(-(-elements // PERIOD))[:elements]
            self.expected = (turn * self.count + self.count * (self.count - 1) // 2).to(self.torch.bfloat16)
            self.buffer = (turn + self.rank).to(self.torch.bfloat16)
            return
        first = self.expected - self.count * (self.count - 1) // 2
        self.buffer.copy_(first / self.count + self.rank)

    def zero(self) -> None:
        """Zeros in place."""
        self.buffer.zero_()

    def wrong(self, zeros: bool) -> tuple[int, Optional[int]]:
        """Counted where the buffer is; one number comes back."""
        off = self.buffer != 0 if zeros else self.buffer != self.expected
        number = int(self.torch.count_nonzero(off).item())
        return (number, int(self.torch.nonzero(off)[0].item())) if number else (0, None)

    def times(self, count: int) -> list[float]:
        """By CUDA events on the stream, one pair a call, nothing waited for between them; by the clock on a CPU.

        The calls wait on the GPU until they are all in its queue: otherwise small sizes tell how fast this process launches.
        """
        if not self.on_gpu:
            return [self._clocked() for _ in range(count)]
        found: list[float] = []
        while len(found) < count:
            found += self._queued(min(QUEUE, count - len(found)))
        return found

    def _queued(self, count: int) -> list[float]:
        cuda, reduce = self.torch.cuda, self.torch.distributed.all_reduce
        events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(count)]
        cuda.synchronize()
        hold = getattr(cuda, "_sleep", None)  # not public, and in every torch; without it the first calls are launch-bound
        if hold is not None:
            hold(HOLD_CYCLES * count)
        for begin, end in events:
            begin.record()
            reduce(self.buffer)
            end.record()
        cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in events]

    def _clocked(self) -> float:
        began = time.perf_counter()
        self.torch.distributed.all_reduce(self.buffer)
        return time.perf_counter() - began


def _nccl() -> Optional[str]:
    """The version of the library that is loaded: torch tells the one that it was built with, whatever LD_PRELOAD brought.

    None where the library does not answer. Its code is major * 10000 + minor * 100 + patch since 2.9 (nccl.h).
    """
    code = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(code))
    except (OSError, AttributeError):
        return None
    return None if failed else f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"


def _pci(properties: Any) -> Optional[str]:
    """The GPU's address as sysfs writes it; None where this torch does not tell."""
    try:
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    except AttributeError:
        return None
