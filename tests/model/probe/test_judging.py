"""What the probes conclude from their figures."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.finding import Status
from nearsocket.model.probe import allreduce, baseline, guard, lottery, path, planning, starts
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.lottery import Draw
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.place import Where, judge
from nearsocket.model.probe.planning import CONFIGURED, FAR, NAIVE, NEAR, Base, Binding
from nearsocket.model.probe.series import Series
from nearsocket.model.probe.starts import ProbeOrder, Row, Started
from tests import build

KEY = Key("sha256:ab", "595.45", "2.30.7", "engine@sha256:cd", "nccl", ("0000:c1:00.0", "0000:c2:00.0"))
BASE = Base(Backend.NCCL, (Place(0, node=1, near=(1,)), Place(1, node=1, near=(1,))), (12 << 10, 48 << 20), far=(0,))


def rows(time: float = 10.0, wrong: int = 0, size: int = 48 << 20, rounds: int = 3) -> tuple[Row, ...]:
    return tuple(
        Row(rank, number, size, 20, time + number / 100, 2 * time, time, time, wrong, 7 if wrong else None)
        for rank in (0, 1)
        for number in range(rounds)
    )


def series(*rounds: float, size: int = 48 << 20) -> Series:
    return Series(size, 2, rounds, max(rounds))


def draw(name: str, where: Where, time: float = 10.0, failed: str | None = None) -> Draw:
    return Draw(name, where, Started(name, rows(time, rounds=1), failed=failed))


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


def test_a_new_key_has_no_baseline_and_judges_nothing() -> None:
    found = baseline.judge("x", KEY, [series(10.0)], None)
    assert found.status is Status.NOT_APPLICABLE
    assert found.summary.startswith("no baseline")


@pytest.mark.parametrize(
    ("times", "status"),
    [
        ((10.0, 10.1, 10.2), Status.PASS),
        ((10.9, 10.9, 10.9), Status.PASS),
        ((11.5, 11.5, 11.6), Status.WARN),
        ((24.0, 24.1, 24.2), Status.FAIL),
        ((5.0, 5.1, 5.2), Status.PASS),
        ((9.0, 13.0, 30.0), Status.PASS),
    ],
)
def test_slower_than_the_baseline_beyond_the_noise_is_what_fails(times: tuple[float, ...], status: Status) -> None:
    known = Baseline(KEY, "2026-01-01T00:00:00Z", (series(10.0, 10.1, 10.2),))
    assert baseline.judge("x", KEY, [series(*times)], known).status is status


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=5), st.text(max_size=8), st.text(max_size=8))
def test_a_baseline_comes_back_from_its_text_whole(rounds: list[float], driver: str, image: str) -> None:
    key = dataclasses.replace(KEY, driver=driver, image=image)
    made = Baseline(key, "2026-01-01T00:00:00Z", (series(*rounds),))
    assert baseline.from_json(made.to_json()) == made


@pytest.mark.parametrize("part", ["fingerprint", "driver", "nccl", "image", "backend"])
def test_each_part_of_the_key_makes_another_key(part: str) -> None:
    assert dataclasses.replace(KEY, **{part: "other"}).digest != KEY.digest


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "nearsocket.baseline/2"}', '{"schema": "nearsocket.baseline/1"}'])
def test_what_is_no_baseline_is_one_line_of_error(text: str) -> None:
    with pytest.raises(NearsocketError, match=r"expected nearsocket\.baseline/1"):
        baseline.from_json(text)


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


def test_a_lottery_takes_its_draws_in_turn_and_fills_before_each() -> None:
    orders = planning.lottery(BASE, 3, (1,))
    assert [one.name for one in orders] == [CONFIGURED, NAIVE] * 3
    assert {one.fill for one in orders} == {(1,)}


def test_a_process_that_holds_a_gpu_is_named_and_refused() -> None:
    held = guard.holder(build.host(), ["0000:c1:00.0"])
    assert held is not None
    assert "process 4242 (sglang::scheduler_TP0" in held
    assert "holds GPU 0000:c1:00.0" in held


@pytest.mark.parametrize("given", [("driver= count=0 ids=0 capabilities=gpu",), ("driver= count=-1 ids= capabilities=gpu",)])
def test_a_container_that_was_given_a_gpu_and_still_reads_its_weights_holds_it(given: tuple[str, ...]) -> None:
    box = build.container(gpu_requests=given, command=("python3", "-m", "sglang.launch_server"))
    gpus = tuple(build.gpu(n, memory_used_bytes=0) for n in (0, 1))
    loading = build.host(processes=(), replicas=(), buffers=(), units=(), containers=(box,), gpus=gpus)
    assert guard.holder(loading, ["0000:c1:00.0"]) == "container sglang holds GPU 0000:c1:00.0"
    elsewhere = guard.holder(loading, ["0000:c2:00.0"])
    assert elsewhere is None if "ids=0" in given[0] else elsewhere == "container sglang holds GPU 0000:c2:00.0"


def test_an_idle_host_may_be_measured_and_filled() -> None:
    idle = build.host(
        processes=(), replicas=(), buffers=(), containers=(), gpus=tuple(build.gpu(n, memory_used_bytes=0) for n in (0, 1))
    )
    assert guard.holder(idle, ["0000:c1:00.0"], filling=True) is None


def test_filling_is_refused_while_an_engine_runs_on_other_gpus() -> None:
    assert guard.holder(build.host(), ["0000:ff:00.0"]) is None
    assert "replica" in (guard.holder(build.host(), ["0000:ff:00.0"], filling=True) or "")


def test_gpu_memory_in_use_by_nobody_seen_counts_as_held() -> None:
    idle = build.host(processes=(), replicas=(), buffers=(), containers=())
    hidden = dataclasses.replace(idle, gpus=(build.gpu(0), build.gpu(1, memory_used_bytes=0)))
    assert guard.holder(hidden, ["0000:c2:00.0"]) is None
    assert "GiB of GPU" in (guard.holder(hidden, ["0000:c1:00.0"]) or "")


def test_gloo_never_carries_a_placement_verdict() -> None:
    finding, where = judge("x", Started("a", rows(), pids=(1, 2)), Backend.GLOO)
    assert (finding.status, where) == (Status.NOT_APPLICABLE, Where.NONE)


def test_a_group_that_was_not_looked_at_is_unknown() -> None:
    finding, where = judge("x", Started("a", rows(), pids=(1, 2)), Backend.NCCL)
    assert (finding.status, where) == (Status.UNKNOWN, Where.UNKNOWN)


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


def test_other_variables_have_a_baseline_of_their_own() -> None:
    facts = {0: {"nccl": "2.30.7"}}
    keys = [
        baseline.key("sha256:ab", "595", "image", "nccl", (), path.environment_digest(variables), facts)
        for variables in ({}, {"NCCL_PROTO": "LL"}, {"NCCL_PROTO": "LL128"}, {"NCCL_DEBUG": "INFO"})
    ]
    digests = [key.digest for key in keys if key is not None]
    assert len(digests) == 4
    assert digests[0] == digests[3], "what is logged makes no other figures"
    assert len(set(digests)) == 3


def test_an_order_comes_back_from_its_text_whole() -> None:
    order = ProbeOrder((*planning.contrast(BASE), *planning.lottery(BASE, 1, (1,))), look=False)
    assert starts.order_from_json(order.to_json().decode()) == order


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
    from nearsocket.model.probe import order

    made = RanksOrder(Backend.STANDIN, BASE.places, (64, 128), environment={"A": "b"})
    assert order.from_json(json.loads(json.dumps(made.to_json()))) == made
