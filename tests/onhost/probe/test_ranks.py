"""Real groups of ranks: the stand-in's numbers go through real shared memory, and every fault is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.probe import allreduce, place
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.starts import ProbeOrder, StartOrder
from nearsocket.onhost.probe import entry, standin
from tests.onhost.probe.group import launched, run

NEAR = frozenset({0})


@pytest.mark.parametrize("count", [2, 3])
def test_every_element_is_right_and_the_figures_of_every_rank_and_round_come_back(count: int) -> None:
    found = run(count)
    assert found.failed is None, found.words
    assert {(row.rank, row.round, row.size_bytes) for row in found.rows} == {
        (rank, turn, size) for rank in range(count) for turn in (0, 1) for size in (4096, 12 << 10, 1 << 20)
    }
    assert all(row.wrong == 0 and row.count >= 5 and row.median_us > 0 for row in found.rows)
    assert allreduce.judge("x", found).status is Status.PASS


def test_its_own_buffers_are_seen_and_judged_while_it_holds_its_communicator() -> None:
    found = run(look=True)
    assert found.seen is not None
    finding, where = place.judge("x", found, Backend.STANDIN, near=NEAR)
    assert (finding.status, where) == (Status.PASS, place.Where.NEAR)
    assert "near: 8 ring buffers" in finding.summary  # four channels a rank


def test_buffers_away_from_the_gpus_are_far() -> None:
    found = run(look=True)
    assert found.seen is not None
    finding, where = place.judge("x", found, Backend.STANDIN, near=frozenset({1}))
    # A node that this machine lacks is no word on where GPUs are.
    assert where is (place.Where.UNKNOWN if not Path("/sys/devices/system/node/node1").exists() else place.Where.FAR)
    assert finding.status is not Status.PASS


def test_a_wrong_sum_is_told_with_its_place() -> None:
    found = run(**{standin.FAULT: "wrong-sum"})
    judged = allreduce.judge("x", found)
    assert judged.status is Status.FAIL
    assert "wrong sums" in judged.summary
    assert {row.first_wrong for row in found.rows if row.wrong} <= {size // 2 - 1 for size in (4096, 12 << 10, 1 << 20)}
    assert {row.rank for row in found.rows if row.wrong} == {0, 1}  # what one rank spoils is in the other's next sum


def test_a_rank_that_dies_is_named_and_the_others_end_with_it() -> None:
    found = run(**{standin.FAULT: "dead-rank"})
    assert (found.failed, found.failed_rank) == ("ended with code 1 at round 1, 12288 bytes", 1)
    assert found.took_s < 30
    assert launched() == set()


def test_a_hang_is_ended_at_its_limit() -> None:
    found = run(limit_s=3, **{standin.FAULT: "hang"})
    assert found.failed is not None
    assert found.failed.startswith("not done within 3 s; last heard at round 1, 12288 bytes")
    assert found.took_s < 30
    assert launched() == set()


def test_gloo_adds_up_right_on_this_machine() -> None:
    pytest.importorskip("torch")
    ranks = RanksOrder(Backend.GLOO, (Place(0), Place(0)), (4096, 1 << 20), 1, 0.05, 100)
    found = entry.each(ProbeOrder((StartOrder("a", ranks, python=sys.executable),), look=False))[0]
    assert found.failed is None, found.words
    assert all(row.wrong == 0 for row in found.rows)
