"""The patch's decision and its chunks, on stand-ins for torch and the workspace."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.image.torchlike import FLOAT16, FLOAT32, PACK, Communicator, Cuda, Tensor, Workspace, load

HIDDENS = st.sampled_from([1, 3, 4, 8, 12, 64, 100, 4096])
SHAPES = st.one_of(
    st.tuples(st.integers(0, 700), HIDDENS), st.tuples(st.integers(0, 9), st.integers(0, 40), HIDDENS), st.tuples(HIDDENS)
)


class Rank:
    """One rank: the patched communicator, its workspace and its stream."""

    def __init__(self, max_numel: int, variable: str | None = "1", world_size: int = 2, **more: Any) -> None:
        self.cuda = Cuda()
        self.module = load(self.cuda, variable)
        self.workspace = Workspace(max_numel, self.cuda, world_size, **more)
        self.comm = self.module.PcieIpcCommunicator(self.workspace, self.cuda, world_size)

    def should(self, tensor: Tensor) -> bool:
        answer = self.comm.should_pcie_ipc_ar(tensor)
        assert isinstance(answer, bool)
        return answer

    def reduce(self, tensor: Tensor) -> Tensor:
        out = self.comm.pcie_ipc_all_reduce(tensor)
        assert isinstance(out, Tensor)
        return out

    @property
    def reductions(self) -> list[tuple[int, int]]:
        """First row and rows of every call of the kernels."""
        return [(call[1], call[2]) for call in self.workspace.calls if call[0] == "all_reduce"]

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.module.NEARSOCKET_COUNTS)


@settings(deadline=None)
@given(shape=SHAPES, max_numel=st.integers(1, 5000).map(lambda packs: packs * PACK), refused=st.integers(1, 200))
def test_chunks_cover_every_row_once_within_the_limit_and_a_refused_one_sends_the_whole_the_old_way(
    shape: tuple[int, ...], max_numel: int, refused: int
) -> None:
    rank = Rank(max_numel, refuse_rows=frozenset({refused}))
    tensor = Tensor.of(*shape)
    taken = rank.should(tensor)
    assert rank.reductions == [], "nothing is launched by the decision"
    if not taken:
        assert sum(rank.counts.values()) == 1 and "chunked" not in rank.counts
        per = max_numel // shape[-1]
        tail = tensor.rows % per if per else 0
        if len(shape) > 1 and tensor.numel() > max_numel and per:
            bad = [rows for rows in {per, tail} - {0} if not rank.workspace.can(Tensor.of(rows, shape[-1]))]
            assert bad, f"declined without a chunk that the kernels refuse: {rank.counts}"
        return
    out = rank.reduce(tensor)
    assert out.shape == tensor.shape and out.storage is not tensor.storage
    assert out.values() == [("sum", row) for row in range(tensor.rows)]
    rows = 0
    for start, count in rank.reductions:
        assert start == rows and count > 0 and count * shape[-1] <= max_numel and count != refused
        rows += count
    assert rows == tensor.rows
    assert len(rank.reductions) == max(1, -(-tensor.rows // (max_numel // shape[-1])))


@settings(deadline=None)
@given(shapes=st.lists(SHAPES, max_size=6), max_numel=st.integers(1, 3000).map(lambda packs: packs * PACK))
def test_all_ranks_decide_alike_whatever_their_data_and_device(shapes: list[tuple[int, ...]], max_numel: int) -> None:
    ranks = [Rank(max_numel), Rank(max_numel)]
    for shape in shapes:
        tensors = [Tensor.of(*shape, rank=number, device=f"cuda:{number}") for number in (0, 1)]
        first, second = (rank.should(tensor) for rank, tensor in zip(ranks, tensors, strict=True))
        assert first is second
        if first:
            for rank, tensor in zip(ranks, tensors, strict=True):
                rank.reduce(tensor)
        assert ranks[0].workspace.calls == ranks[1].workspace.calls
        assert ranks[0].counts == ranks[1].counts


@pytest.mark.parametrize("variable", [None, "", "0", "false", "no", "on?"])
def test_unset_leaves_the_class_its_own_methods(variable: str | None) -> None:
    made = load(Cuda(), variable).PcieIpcCommunicator
    assert made.should_pcie_ipc_ar is Communicator.should_pcie_ipc_ar
    assert made.pcie_ipc_all_reduce is Communicator.pcie_ipc_all_reduce


@settings(deadline=None)
@given(shape=SHAPES, max_numel=st.integers(1, 3000).map(lambda packs: packs * PACK), on=st.booleans())
def test_what_fits_the_workspace_makes_the_unpatched_calls(shape: tuple[int, ...], max_numel: int, on: bool) -> None:
    tensor = Tensor.of(*shape)
    assume(tensor.numel() <= max_numel or not on)
    plain = Rank(max_numel, None)
    plain.comm = Communicator(plain.workspace, plain.cuda)
    patched = Rank(max_numel, "1" if on else None)
    assert patched.should(tensor) is plain.should(tensor)
    if plain.should(tensor):
        patched.should(tensor)
        assert patched.reduce(tensor).values() == plain.reduce(tensor).values()
    else:
        patched.should(tensor)
    assert patched.workspace.calls == plain.workspace.calls


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (Tensor.of(400, 64, contiguous=False), "layout"),
        (Tensor.of(25600), "layout"),
        (Tensor.of(400, 64, dtype=FLOAT16), "type"),
        (Tensor.of(400, 64, dtype=FLOAT32), "type"),
        (Tensor.of(0, 64), "zero-rows"),
        (Tensor.of(4, 0, 64), "zero-rows"),
        (Tensor.of(2, 1032), "wide-rows"),
        (Tensor.of(1, 1032), "wide-rows"),
        (Tensor.of(1, 8), "unsupported"),
        (Tensor.of(400, 64, offset=4), "alignment"),
        (Tensor.of(1001, 3), "chunk-unsupported"),
        (Tensor.of(129, 8), "tail-unsupported"),
    ],
)
def test_the_old_way_has_a_count_that_says_why(tensor: Tensor, reason: str) -> None:
    rank = Rank(1024)
    assert rank.should(tensor) is False
    assert rank.should(tensor) is False
    assert rank.counts == {reason: 2}
    assert rank.reductions == []


def test_a_group_of_more_than_two_is_left_alone() -> None:
    rank = Rank(1024, world_size=4)
    assert rank.should(Tensor.of(400, 64)) is False
    assert rank.counts == {"world-size": 1}
    assert rank.should(Tensor.of(4, 64)) is True


def test_a_disabled_communicator_and_one_without_workspace_keep_the_old_way() -> None:
    rank = Rank(1024)
    rank.comm.disabled = True
    assert rank.should(Tensor.of(400, 64)) is False
    rank.comm.disabled, rank.comm._workspace = False, None
    assert rank.should(Tensor.of(400, 64)) is False
    assert rank.counts == {"disabled": 1, "no-workspace": 1}


def test_a_tensor_that_was_declined_reaches_upstream_as_it_would_have() -> None:
    rank = Rank(1024)
    with pytest.raises(ValueError, match="unsupported shape"):
        rank.reduce(Tensor.of(129, 8))
    assert rank.reductions == []


def test_the_workspace_is_bound_anew_when_the_stream_changes_and_only_then() -> None:
    rank, tensor = Rank(1024), Tensor.of(40, 64)
    for stream in ("main", "main", "side", "main"):
        rank.cuda.stream = stream
        assert rank.should(tensor)
        rank.reduce(tensor)
    small = Tensor.of(2, 64)
    assert rank.should(small)
    rank.reduce(small)
    assert [call for call in rank.workspace.calls if call[0] == "rebind"] == [("rebind",)] * 3
    assert len(rank.reductions) == 4 * 3 + 1


def test_a_capture_takes_chunks_only_in_shapes_that_ran_before() -> None:
    rank, tensor, other = Rank(1024), Tensor.of(40, 64), Tensor.of(41, 64)
    rank.cuda.capturing = True
    assert rank.should(tensor) is False, "a first call inside a capture cannot settle its launch"
    rank.cuda.capturing = False
    assert rank.should(tensor)
    rank.reduce(tensor)
    rank.cuda.capturing, rank.cuda.stream = True, "capture"
    assert rank.should(tensor)
    assert rank.reduce(tensor).values() == [("sum", row) for row in range(40)]
    assert rank.should(other) is False, "the tail of 9 rows never ran"
    assert rank.counts == {"capture": 2, "chunked": 2}


def test_the_log_says_what_became_of_reductions_at_powers_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tests.image")
    rank = Rank(1024)
    for _ in range(120):
        rank.should(Tensor.of(40, 64))
    rank.should(Tensor.of(40, 64, dtype=FLOAT32))
    assert [record.getMessage() for record in caplog.records] == [
        "SGLANG_PCIE_IPC_CHUNKED: on (chunked-pcie-allreduce/1)",
        "SGLANG_PCIE_IPC_CHUNKED: chunked: 1",
        "SGLANG_PCIE_IPC_CHUNKED: chunked: 10",
        "SGLANG_PCIE_IPC_CHUNKED: chunked: 100",
        "SGLANG_PCIE_IPC_CHUNKED: type: 1",
    ]
