"""A rank's timing on a stand-in for torch that records what is put on the stream: what must be queued before anything runs."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest

from nearsocket.model.probe.order import Backend, Place
from nearsocket.onhost.probe import torchrank
from nearsocket.onhost.probe.torchrank import HOLD_CYCLES, QUEUE, TorchRank


class Stream:
    """Calls in their order; an event's time is its place in the queue."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def event(self, enable_timing: bool) -> Any:
        assert enable_timing
        made = types.SimpleNamespace(place=0)

        def record() -> None:
            made.place = len(self.calls)
            self.calls.append("event")

        made.record = record
        made.elapsed_time = lambda end: float(end.place - made.place)
        return made


@pytest.fixture
def stream() -> Stream:
    return Stream()


def rank_on(stream: Stream, with_hold: bool = True) -> TorchRank:
    made = TorchRank(Backend.NCCL, Place(0), 0, 2, 1, 1.0)
    cuda = types.SimpleNamespace(
        Event=stream.event,
        synchronize=lambda: stream.calls.append("synchronize"),
        **({"_sleep": lambda cycles: stream.calls.append(f"hold {cycles}")} if with_hold else {}),
    )
    distributed = types.SimpleNamespace(all_reduce=lambda buffer: stream.calls.append("reduce"))
    made.torch = types.SimpleNamespace(cuda=cuda, distributed=distributed)
    return made


def test_calls_are_queued_behind_a_kernel_that_holds_the_stream_a_batch_at_a_time(stream: Stream) -> None:
    times = rank_on(stream).times(QUEUE + 3)
    assert times == [2e-3] * (QUEUE + 3)  # event, reduce, event: two places apart, in milliseconds
    first = ["synchronize", f"hold {HOLD_CYCLES * QUEUE}", *["event", "reduce", "event"] * QUEUE, "synchronize"]
    assert stream.calls[: len(first)] == first
    assert stream.calls[len(first) : len(first) + 2] == ["synchronize", f"hold {HOLD_CYCLES * 3}"]
    assert stream.calls.count("reduce") == QUEUE + 3


def test_a_torch_without_the_holding_kernel_measures_all_the_same(stream: Stream) -> None:
    assert len(rank_on(stream, with_hold=False).times(5)) == 5


@pytest.mark.parametrize(("code", "version"), [(22809, "2.28.9"), (23007, "2.30.7"), (21805, "2.18.5")])
def test_the_version_is_that_of_the_library_that_is_loaded(monkeypatch: pytest.MonkeyPatch, code: int, version: str) -> None:
    def answer(pointer: Any) -> int:
        pointer._obj.value = code
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: types.SimpleNamespace(ncclGetVersion=answer))
    assert torchrank._nccl() == version


def test_no_library_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert torchrank._nccl() is None
