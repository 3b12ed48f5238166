"""Policies: only a proven far acts, restarts end, the last replica that serves stays, and a lost memory allows nothing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.consequence import DAY_S, MOST_RESTARTS, History, decide, from_json
from nearsocket.model.settings import OnFar
from nearsocket.model.verdict import Action, Word

WINDOW_S = 4 * 3600.0
NOW = 1_800_000_000.0


def restart(history: History, now: float = NOW, serve: bool = True, rendered: str = "r") -> tuple[Action, str, History]:
    return decide(OnFar.RESTART, Word.FAR, history, rendered, serve, now, WINDOW_S)


@given(st.sampled_from(OnFar), st.sampled_from([word for word in Word if word is not Word.FAR]), st.booleans())
def test_only_a_proven_far_acts(policy: OnFar, word: Word, serve: bool) -> None:
    assert decide(policy, word, History(), "r", serve, NOW, WINDOW_S)[0] is Action.NONE


def test_each_policy_does_what_it_is_called() -> None:
    done = [decide(policy, Word.FAR, History(), "r", True, NOW, WINDOW_S)[0] for policy in OnFar]
    assert done == [Action.NONE, Action.FAIL, Action.RESTART]


def test_the_last_replica_that_serves_is_never_restarted() -> None:
    action, reason, after = restart(History(rendered="r"), serve=False)
    assert (action, after.restarts) == (Action.NONE, ())
    assert "no other replica" in reason


@given(st.lists(st.floats(1, 5 * DAY_S), min_size=1, max_size=60), st.sampled_from([600.0, WINDOW_S, DAY_S, 3.5 * DAY_S]))
def test_far_starts_alone_never_reach_the_limit_that_systemd_has(steps: list[float], window_s: float) -> None:
    """Restarts that are asked for count in StartLimitBurst, which allows three more: in no window are there more, however long."""
    now, history, made = NOW, History(), []
    for step in steps:
        now += step
        action, _, history = decide(OnFar.RESTART, Word.FAR, history, "r", True, now, window_s)
        if action is Action.RESTART:
            made.append(now)
    for moment in made:
        assert sum(moment - window_s < other <= moment for other in made) <= MOST_RESTARTS


@given(st.lists(st.floats(1, 2 * DAY_S), min_size=1, max_size=60))
def test_there_are_at_most_three_restarts_in_a_window_and_then_one_a_day(steps: list[float]) -> None:
    """A start that lies far every time, at any moments."""
    now, history, made = NOW, History(), []
    for step in steps:
        now += step
        action, _, history = restart(history, now)
        history = from_json(history.to_json())
        if action is Action.RESTART:
            made.append(now)
    for moment in made:
        assert sum(moment - WINDOW_S < other <= moment for other in made) <= MOST_RESTARTS
    third = next((b for a, b in zip(made, made[2:], strict=False) if b - a < WINDOW_S), None)
    if third is not None:
        after = [moment for moment in made if moment >= third]
        assert all(later - earlier >= DAY_S for earlier, later in itertools.pairwise(after))


def test_other_files_begin_anew() -> None:
    spent = History((NOW - 10, NOW - 5, NOW - 1), True, "r")
    assert restart(spent)[0] is Action.NONE
    assert restart(spent, rendered="other")[0] is Action.RESTART


def test_a_clock_that_went_back_allows_nothing_more() -> None:
    ahead = History((NOW + 9 * DAY_S, NOW + 9 * DAY_S + 1, NOW + 9 * DAY_S + 2), False, "r")
    assert restart(ahead)[0] is Action.NONE


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"restarts": 3, "spent": true, "rendered": ""}', '{"restarts": ["x"]}'])
def test_a_damaged_memory_allows_nothing_today(text: str) -> None:
    assert restart(from_json(text))[0] is Action.NONE
