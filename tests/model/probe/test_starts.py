"""An order of starts and its answer as texts, and the figures that an answer lacks."""

from __future__ import annotations

import dataclasses
import json

import pytest

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import order, planning, starts
from nearsocket.model.probe.order import Backend, RanksOrder
from nearsocket.model.probe.starts import ProbeOrder, Started
from tests.model.probe.figures import BASE, rows


@pytest.mark.parametrize("lost", [0, 3, 5])
def test_figures_that_no_rank_told_are_no_pass(lost: int) -> None:
    ranks = RanksOrder(Backend.NCCL, BASE.places, (48 << 20,), 3)
    told = rows()
    assert starts.incomplete(ranks, told, None) is None
    missing = told[lost]
    said = starts.incomplete(ranks, (*told[:lost], *told[lost + 1 :]), None) or ""
    assert "(6), found 5" in said
    assert f"rank {missing.rank} told nothing of 48 MiB in round {missing.round + 1}" in said


def test_sizes_that_did_not_fit_are_not_missed() -> None:
    ranks = RanksOrder(Backend.NCCL, BASE.places, (48 << 20, 256 << 20), 3)
    assert starts.incomplete(ranks, rows(), 100 << 20) is None
    assert starts.incomplete(ranks, rows(), None) is not None
    assert starts.incomplete(ranks, (), 1) is None


def test_an_order_comes_back_from_its_text_whole() -> None:
    whole = ProbeOrder((*planning.contrast(BASE), *planning.lottery(BASE, 1, (1,))), look=False)
    assert starts.order_from_json(whole.to_json().decode()) == whole


def test_an_answer_comes_back_from_its_text_whole() -> None:
    run = Started("a", rows(), {0: {"nccl": "2.30.7"}}, "hung", 1, 4096, (5, 6), "words", 1.5)
    assert starts.answer_from_json(starts.answer([run]).decode()) == (run,)


_SEEN = json.dumps({"schema": starts.ANSWER, "starts": [{**Started("a").to_json(), "seen": {"schema": "other"}}]})


@pytest.mark.parametrize("text", ["", "{}", "null", '{"schema": "nearsocket.probe-starts/9", "starts": []}', _SEEN])
def test_another_answer_is_one_line_of_error(text: str) -> None:
    with pytest.raises(NearsocketError, match=r"expected nearsocket\.probe-starts/1"):
        starts.answer_from_json(text)


@pytest.mark.parametrize("change", [{"wrong": -1}, {"median_us": "1"}, {"rank": True}, {"median_us": 1e99}, {"extra": 1}])
def test_a_row_that_no_rank_says_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        starts.row({**dataclasses.asdict(rows()[0]), **change})


def test_the_ranks_order_comes_back_from_json() -> None:
    made = RanksOrder(Backend.STANDIN, BASE.places, (64, 128), environment={"A": "b"})
    assert order.from_json(json.loads(json.dumps(made.to_json()))) == made
