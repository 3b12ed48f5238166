"""Stand-ins for torch and for FlashInfer's workspace: what the patch looks at, no arithmetic and no GPU."""

from __future__ import annotations

import contextlib
import logging
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

PATCH = Path(__file__).resolve().parent.parent.parent / "templates" / "image" / "chunked.py"
BFLOAT16, FLOAT16, FLOAT32 = "bfloat16", "float16", "float32"
PACK = 8


@dataclass(frozen=True)
class Tensor:
    """A window of rows in a storage; `rows[i]` is what row i holds."""

    shape: tuple[int, ...]
    storage: list[Any]
    start: int = 0
    dtype: str = BFLOAT16
    contiguous: bool = True
    offset: int = 0
    device: str = "cuda:0"

    @classmethod
    def of(cls, *shape: int, rank: int = 0, **more: Any) -> Tensor:
        tensor = cls(shape, [], **more)
        tensor.storage.extend((rank, row) for row in range(tensor.rows))
        return tensor

    @property
    def rows(self) -> int:
        rows = 1
        for size in self.shape[:-1]:
            rows *= size
        return rows

    def numel(self) -> int:
        return self.rows * self.shape[-1]

    def dim(self) -> int:
        return len(self.shape)

    def is_contiguous(self) -> bool:
        return self.contiguous

    def storage_offset(self) -> int:
        return self.offset + self.start * self.shape[-1]

    def view(self, rows: int, hidden: int) -> Tensor:
        assert self.contiguous and rows * hidden == self.numel()
        return replace(self, shape=(rows, hidden))

    def __getitem__(self, rows: slice) -> Tensor:
        assert len(self.shape) == 2
        start, stop, step = rows.indices(self.shape[0])
        assert step == 1
        return replace(self, shape=(max(stop - start, 0), self.shape[1]), start=self.start + start)

    def values(self) -> list[Any]:
        return self.storage[self.start : self.start + self.rows]


def empty_like(tensor: Tensor) -> Tensor:
    return replace(tensor, storage=[None] * tensor.rows, start=0, offset=0)


@dataclass
class Cuda:
    """The current stream, and whether it is being captured."""

    stream: str = "main"
    capturing: bool = False
    Stream: type = str

    def current_stream(self) -> str:
        return self.stream

    def is_current_stream_capturing(self) -> bool:
        return self.capturing


@dataclass
class Workspace:
    """FlashInfer's rules for a shape and a stream, recorded calls, the reduced rows in `out`."""

    max_numel: int
    cuda: Cuda
    world_size: int = 2
    refuse_rows: frozenset[int] = frozenset()
    calls: list[Any] = field(default_factory=list)
    resolved: set[tuple[int, ...]] = field(default_factory=set)
    bound: str | None = None

    def supports(self, inp: Tensor) -> bool:
        self.calls.append(("supports", inp.shape))
        return self.can(inp)

    def can(self, inp: Tensor) -> bool:
        fits = inp.numel() <= self.max_numel and inp.numel() % PACK == 0 and inp.numel() >= PACK * self.world_size
        return fits and inp.contiguous and inp.dtype in (BFLOAT16, FLOAT16) and inp.rows not in self.refuse_rows

    def rebind_stream(self) -> None:
        self.calls.append(("rebind",))
        self.bound = None

    def all_reduce(self, inp: Tensor, *, out: Tensor | None = None) -> Tensor:
        if not self.can(inp):
            raise ValueError(f"unsupported shape {inp.shape}")
        key = (inp.numel(), inp.shape[-1])
        if key not in self.resolved:
            if self.cuda.capturing:
                raise RuntimeError("the launch configuration has not been resolved yet")
            self.resolved.add(key)
        if not self.cuda.capturing:
            if self.bound not in (None, self.cuda.stream):
                raise RuntimeError("bound to another stream")
            self.bound = self.cuda.stream
        assert inp.storage_offset() % PACK == 0 or inp.offset
        out = empty_like(inp) if out is None else out
        assert out.shape == inp.shape and out.storage is not inp.storage
        self.calls.append(("all_reduce", inp.start, inp.rows, inp.shape[-1], self.cuda.stream))
        out.storage[out.start : out.start + inp.rows] = [("sum", row) for _, row in inp.values()]
        return out


class Communicator:
    """A stand-in with the names and the order of decisions of SGLang's PcieIpcCommunicator."""

    def __init__(self, workspace: Workspace | None, cuda: Cuda, world_size: int = 2) -> None:
        self.disabled = False
        self.max_numel = workspace.max_numel if workspace else 0
        self._workspace = workspace
        self._bound_stream: str | None = None
        self._world_size = world_size
        self._cuda = cuda

    def should_pcie_ipc_ar(self, inp: Tensor) -> bool:
        if self.disabled or not inp.is_contiguous() or inp.dim() < 2 or inp.dtype != BFLOAT16 or self._workspace is None:
            return False
        return inp.numel() <= self.max_numel and self._workspace.supports(inp)

    def pcie_ipc_all_reduce(self, inp: Tensor) -> Tensor:
        assert self._workspace is not None
        if self._bound_stream != self._cuda.stream:
            self._workspace.rebind_stream()
            self._bound_stream = self._cuda.stream
        return self._workspace.all_reduce(inp)


def fake_torch(cuda: Cuda) -> types.ModuleType:
    """A module `torch` with what upstream's file and the patch name."""
    torch = types.ModuleType("torch")
    torch.__dict__.update(
        bfloat16=BFLOAT16,
        dtype=str,
        Tensor=Tensor,
        empty_like=empty_like,
        cuda=cuda,
        device=lambda text: types.SimpleNamespace(type=str(text).partition(":")[0]),
        empty=lambda shape, dtype, device: Tensor.of(*shape),
    )
    return torch


@contextlib.contextmanager
def modules(**named: types.ModuleType) -> Iterator[None]:
    """sys.modules with these names (`__` stands for a dot) for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in named.items():
            patch.setitem(sys.modules, name.replace("__", "."), module)
        yield


def load(cuda: Cuda, variable: str | None = "1") -> types.SimpleNamespace:
    """The patch run behind a fresh copy of the stand-in class; the names it left."""
    names: dict[str, Any] = {
        "__name__": "pcie_ipc_ar",
        "logger": logging.getLogger("tests.image"),
        "PcieIpcCommunicator": type(
            "PcieIpcCommunicator", (), {k: v for k, v in vars(Communicator).items() if k not in ("__dict__", "__weakref__")}
        ),
    }
    with modules(torch=fake_torch(cuda)), pytest.MonkeyPatch.context() as patch:
        patch.delenv("SGLANG_PCIE_IPC_CHUNKED", raising=False)
        if variable is not None:
            patch.setenv("SGLANG_PCIE_IPC_CHUNKED", variable)
        exec(compile(PATCH.read_text(encoding="utf-8"), str(PATCH), "exec"), names)
    return types.SimpleNamespace(**names)
