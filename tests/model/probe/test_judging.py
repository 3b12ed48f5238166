"""What an all-reduce, a contrast, a sweep, a lottery and a placement conclude from their figures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.finding import Status
from nearsocket.model.probe import allreduce, lottery
from nearsocket.model.probe.order import Backend
from nearsocket.model.probe.place import Where, judge
from nearsocket.model.probe.planning import CONFIGURED, FAR, NAIVE, NEAR
from nearsocket.model.probe.starts import Started
from tests.model.probe.figures import draw, rows, series


def test_a_start_with_every_element_right_passes_with_its_figures() -> None:
    found = allreduce.judge("replica a", Started("as configured", rows(2300.0), pids=(1, 2)))
    assert found.status is Status.PASS
    assert "2.30 ms, 21.9 GB/s" in found.summary


def test_one_wrong_element_fails_and_names_place_and_rank() -> None:
    found = allreduce.judge("replica a", Started("as configured", (*rows()[:5], *rows(wrong=1)[-1:]), pids=(1, 2)))
    assert found.status is Status.FAIL
    assert "1 of 25,165,824 elements of 48 MiB on rank 1, the first at 7" in found.summary


def test_a_wrong_sum_is_told_before_the_hang_that_followed() -> None:
    found = allreduce.judge("x", Started("a", rows(wrong=4), failed="not done within 5 s", failed_rank=0))
    assert found.summary.startswith("wrong sums")


def test_a_rank_that_failed_is_named() -> None:
    found = allreduce.judge("x", Started("a", failed="ended by signal 9 at round 1", failed_rank=1, words="one\nlast words\n"))
    assert (found.status, found.summary) == (Status.FAIL, "rank 1: ended by signal 9 at round 1")
    assert found.evidence[-1].text == "last words"


def test_nothing_measured_is_no_pass() -> None:
    assert allreduce.judge("x", Started("a", pids=(1, 2))).status is Status.UNKNOWN


def test_an_image_without_what_the_ranks_need_is_unknown_and_no_failure() -> None:
    found = allreduce.judge("x", Started("a", failed="expected torch in the ranks' Python, found none", failed_rank=0, lacks=True))
    assert (found.status, found.summary) == (
        Status.UNKNOWN,
        "it could not run: rank 0: expected torch in the ranks' Python, found none",
    )
    assert "torch" in (found.remedy or ""), "looking at the GPU's errors would not bring it"


def contrast(near: float, far: float, where: tuple[Where, Where] = (Where.NEAR, Where.FAR)) -> tuple[Status, str]:
    found = allreduce.contrast([Started(NEAR, rows(near))] * 2, [Started(FAR, rows(far))] * 2)
    finding = allreduce.judge_contrast("x", found, [where[0]] * 2, [where[1]] * 2)
    return finding.status, finding.summary


def test_contrast_tells_near_from_far() -> None:
    status, summary = contrast(2300.0, 5700.0)
    assert status is Status.PASS
    assert "near pays: far takes 2.48 times as long at 48 MiB" in summary


def test_contrast_may_find_no_benefit() -> None:
    assert contrast(2300.0, 2310.0)[1].startswith("no benefit here")
    assert contrast(2300.0, 2310.0, (Where.NONE, Where.NONE))[1].startswith("no benefit here")


def test_contrast_says_nothing_where_the_buffers_did_not_land_as_forced() -> None:
    assert contrast(2300.0, 5700.0, (Where.NEAR, Where.SPLIT))[0] is Status.UNKNOWN
    assert contrast(2300.0, 5700.0, (Where.UNKNOWN, Where.FAR))[0] is Status.UNKNOWN


def test_a_sweep_names_what_beats_the_setting_in_force_and_what_did_not_run() -> None:
    table = {
        CONFIGURED: (series(20.0, 20.1, 20.2, size=12 << 10), series(2300.0, 2310.0, 2320.0)),
        "NCCL_PROTO=LL": (series(12.0, 12.1, 12.2, size=12 << 10), series(4600.0, 4610.0, 4620.0)),
    }
    found = allreduce.judge_sweep("x", table, {"NCCL_PROTO=LL128": "rank 0: not supported"})
    assert "decode (12 KiB) NCCL_PROTO=LL takes 60 % of the time" in found.summary
    assert "prefill (48 MiB) nothing beats the setting in force" in found.summary
    assert any("did not run: rank 0" in piece.text for piece in found.evidence)


def test_a_sweep_without_the_setting_in_force_concludes_nothing() -> None:
    assert allreduce.judge_sweep("x", {"A=1": (series(1.0),)}, {CONFIGURED: "hung"}).status is Status.UNKNOWN


def test_a_lottery_with_every_draw_near_passes_and_says_how_sure_that_is() -> None:
    draws = [draw(CONFIGURED, Where.NEAR) for _ in range(20)]
    draws += [draw(NAIVE, Where.FAR if n % 2 else Where.SPLIT) for n in range(20)]
    found = lottery.judge("x", draws)
    assert found.status is Status.PASS
    assert "as configured 0 of 20 (0 % to 17 %) draws not near; naive 20 of 20 (83 % to 100 %) not near" in found.summary


def test_one_draw_away_from_near_fails_as_configured_and_not_naive() -> None:
    near = [draw(CONFIGURED, Where.NEAR) for _ in range(9)]
    assert lottery.judge("x", [*near, draw(CONFIGURED, Where.SPLIT)]).status is Status.FAIL
    assert lottery.judge("x", [*near, draw(NAIVE, Where.FAR)]).status is Status.PASS


def test_draws_that_were_not_seen_are_no_pass() -> None:
    assert lottery.judge("x", [draw(CONFIGURED, Where.NEAR), draw(CONFIGURED, Where.UNKNOWN)]).status is Status.UNKNOWN
    assert lottery.judge("x", [draw(CONFIGURED, Where.NEAR), draw(NAIVE, Where.NEAR, failed="hung")]).status is Status.FAIL
    assert lottery.judge("x", [draw(CONFIGURED, Where.NONE), draw(NAIVE, Where.NONE)]).status is Status.NOT_APPLICABLE


@given(st.lists(st.sampled_from(list(Where)), min_size=1, max_size=30))
def test_the_shares_of_a_lottery_add_up(places: list[Where]) -> None:
    found = lottery.shares(draw(NAIVE, where) for where in places)
    known = [where for where in places if where in (Where.NEAR, Where.FAR, Where.SPLIT)]
    assert sum(share.hits for share in found.values()) == len(known)
    assert all(share.low <= share.hits / share.draws <= share.high for share in found.values())


def test_gloo_never_carries_a_placement_verdict() -> None:
    finding, where = judge("x", Started("a", rows(), pids=(1, 2)), Backend.GLOO)
    assert (finding.status, where) == (Status.NOT_APPLICABLE, Where.NONE)


def test_a_group_that_was_not_looked_at_is_unknown() -> None:
    finding, where = judge("x", Started("a", rows(), pids=(1, 2)), Backend.NCCL)
    assert (finding.status, where) == (Status.UNKNOWN, Where.UNKNOWN)
