"""Which starts a contrast, a sweep and a lottery are made of, and in which turn."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.errors import UsageError
from nearsocket.model.probe import planning
from nearsocket.model.probe.order import Place
from nearsocket.model.probe.planning import CONFIGURED, FAR, NAIVE, NEAR, Binding
from tests.model.probe.figures import BASE


def test_contrast_starts_are_in_turn_and_without_cumem() -> None:
    orders = planning.contrast(BASE)
    assert [one.name for one in orders] == [NEAR, FAR, NEAR, FAR]
    assert {one.ranks.environment["NCCL_CUMEM_ENABLE"] for one in orders} == {"0"}
    assert [one.ranks.ranks[0].bind for one in orders] == [(1,), (0,), (1,), (0,)]


def test_contrast_is_refused_where_nothing_can_be_far() -> None:
    with pytest.raises(UsageError, match="nothing can be far"):
        planning.contrast(dataclasses.replace(BASE, far=()))
    with pytest.raises(UsageError, match="whose node is not known"):
        planning.contrast(dataclasses.replace(BASE, places=(Place(0), Place(1))))


def test_a_container_is_bound_from_outside_and_its_ranks_do_not_bind_themselves() -> None:
    argv = {binding: ("docker", binding.value) for binding in Binding}
    near, far, *_ = planning.contrast(dataclasses.replace(BASE, argv=argv, container="c"))
    assert (near.argv, far.argv) == (("docker", "near"), ("docker", "far"))
    assert {place.bind for one in (near, far) for place in one.ranks.ranks} == {()}
    assert (near.container, far.container) == ("c-1", "c-2")


def test_a_sweep_has_every_combination_and_the_setting_in_force_once_a_pass_in_turn() -> None:
    settings = planning.sweep_settings(["NCCL_PROTO=LL,Simple", "NCCL_CUMEM_ENABLE=0,1"])
    orders = planning.sweep(BASE, settings, passes=3)
    names = [one.name for one in orders]
    assert sorted(names[:5]) == sorted(names[5:10]) == sorted(names[10:])
    assert len({names[0], names[5], names[10]}) == 3
    assert CONFIGURED in names
    last = next(one for one in orders if one.name == "NCCL_PROTO=Simple NCCL_CUMEM_ENABLE=1")
    assert last.ranks.environment["NCCL_PROTO"] == "Simple"
    assert last.ranks.rounds == 1


@pytest.mark.parametrize("words", [["NCCL_PROTO"], ["=1"], ["A="], ["A=1", "A=2"], ["A B=1"], [f"A={','.join('x' * 65)}"], []])
def test_settings_that_cannot_be_swept_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        planning.sweep_settings(words)


def test_a_lottery_takes_its_draws_in_turn_and_fills_before_each() -> None:
    orders = planning.lottery(BASE, 3, (1,))
    assert [one.name for one in orders] == [CONFIGURED, NAIVE] * 3
    assert {one.fill for one in orders} == {(1,)}
