"""A rollout over stand-in hosts: order, failures in each phase, a client that is lost in each phase, plans for review."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nearsocket.control.rollout.came import Came
from nearsocket.control.rollout.look import planned
from nearsocket.control.rollout.run import Unreachable
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.generation import Record
from nearsocket.model.rollout.plan import Reviewed, from_json
from nearsocket.model.rollout.progress import Phase, unfinished
from nearsocket.onhost.apply import lock
from tests.control.rollout.fleet import APPLY, DRY, MARK, PROOF, SURVEY, Fleet, make, parsed

NAMES = ("r1", "r2", "r3")
VERIFIED = dict.fromkeys(NAMES, "verified")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Three hosts on which nothing is yet."""
    return make(tmp_path, NAMES, monkeypatch)


@pytest.fixture
def serving(fleet: Fleet) -> Fleet:
    """The same with both replicas serving from generation 1, and a change in the inventory that restarts them."""
    assert fleet.ends() == VERIFIED
    fleet.want(environment={"NEW": "1"})
    fleet.log.clear()
    return fleet


def numbers(fleet: Fleet) -> list[int | None]:
    return [host.tree.number() for host in fleet.hosts]


def test_hosts_are_changed_in_order_each_proven_before_the_next_is_begun(serving: Fleet) -> None:
    report = serving.roll()
    assert report.exit_code == 0
    assert [host.end.value for host in report.hosts] == ["verified"] * 3
    work = [line for line in serving.log if line.split()[1] in (APPLY, PROOF, MARK)]
    assert work[:9] == [f"{name} {what}" for name in NAMES for what in (APPLY, PROOF, MARK)]
    assert numbers(serving) == [2, 2, 2]
    assert [host.left.closed for host in serving.hosts if host.left] == [True] * 3
    one = report.hosts[0]
    assert (one.before, one.after) == ("1", "2")
    assert [(replica.name, replica.did) for replica in one.replicas] == [("a", "restarted"), ("b", "restarted")]
    assert all(replica.took_s is not None and replica.after and replica.after.line.startswith("near") for replica in one.replicas)


def test_a_second_rollout_changes_nothing_and_proves_what_runs(serving: Fleet) -> None:
    serving.roll()
    starts = [host.starts() for host in serving.hosts]
    assert serving.ends() == dict.fromkeys(NAMES, "current")
    assert [host.starts() for host in serving.hosts] == starts


def test_replicas_of_a_host_start_one_after_another_and_a_far_one_stops_the_next(fleet: Fleet) -> None:
    fleet.host("r1").prove(a="far")
    report = fleet.roll()
    assert report.exit_code == 2
    assert [host.end.value for host in report.hosts] == ["failed", "not-touched", "not-touched"]
    assert "a: nccl.buffer-placement fail" in str(report.hosts[0].reason)
    assert "nothing to go back to" in str(report.hosts[0].reason)
    assert fleet.host("r1").starts().keys() == {"a"}
    assert numbers(fleet) == [1, None, None]
    assert report.hosts[1].reason == "not touched: r1 failed"


@pytest.mark.parametrize("word", ["far", "unknown", "none"])
def test_a_host_that_is_not_proven_goes_back_and_is_proven_there_and_later_hosts_are_not_touched(serving: Fleet, word: str) -> None:
    second, third = serving.host("r2"), serving.host("r3")
    before = third.starts()
    second.system.change(proofs={"b": word}, mends="b")
    report = serving.roll()
    assert report.exit_code == 2
    assert [host.end.value for host in report.hosts] == ["verified", "rolled-back", "not-touched"]
    assert numbers(serving) == [2, 1, 1]
    assert third.starts() == before
    told = report.hosts[1]
    assert (told.before, told.after) == ("1", "1")
    assert "b" in str(told.reason)
    assert [replica.after.line[:4] for replica in told.replicas if replica.after] == ["near", "near"]
    assert second.left is not None
    assert second.left.phase is Phase.ROLLED_BACK
    assert second.left.previous == "1"


def test_an_unknown_proof_is_taken_where_the_user_says_so_and_a_far_one_never(serving: Fleet) -> None:
    serving.host("r1").prove(a="unknown")
    assert serving.ends(job={"accept_unknown": True}) == VERIFIED
    serving.want(environment={"NEW": "2"})
    serving.host("r1").system.change(proofs={"a": "far"}, mends="a")
    assert serving.ends(job={"accept_unknown": True})["r1"] == "rolled-back"


def test_a_unit_that_does_not_start_is_a_failure_like_any_other(serving: Fleet) -> None:
    serving.host("r2").system.change(broken=["nearsocket-sglang-b.service"])
    report = serving.roll()
    assert [host.end.value for host in report.hosts] == ["verified", "failed", "not-touched"]
    assert "THE WAY BACK FAILED TOO" in str(report.hosts[1].reason)
    serving.host("r2").system.change(broken=[])
    assert serving.ends(resume=True) == {"r1": "verified-earlier", "r2": "verified", "r3": "verified"}


def test_a_way_back_that_is_not_proven_either_is_said_plainly(serving: Fleet) -> None:
    serving.host("r2").prove(b="far")
    report = serving.roll()
    assert report.hosts[1].end.value == "failed"
    assert "it is back on 1, and THAT IS NOT PROVEN EITHER" in str(report.hosts[1].reason)


def test_a_failed_rollout_is_refused_until_it_is_resumed_which_skips_what_is_proven(serving: Fleet) -> None:
    serving.host("r2").system.change(proofs={"b": "far"}, mends="b")
    serving.roll()
    with pytest.raises(NearsocketError, match=r"found site \w+ by ops@here since .*r1 verified, r2 rolled-back, r3 not begun"):
        serving.roll()
    assert serving.host("r1").log.count(APPLY) == 2
    serving.log.clear()
    came = Came()
    report = serving.roll(came, resume=True)
    assert [host.end.value for host in report.hosts] == ["verified-earlier", "verified", "verified"]
    assert f"r1 {APPLY}" not in serving.log
    assert numbers(serving) == [2, 3, 2]
    assert serving.ends() == dict.fromkeys(NAMES, "current")


def test_a_resumed_rollout_is_the_same_one_for_another_user(serving: Fleet) -> None:
    serving.host("r2").system.change(proofs={"b": "far"}, mends="b")
    first = serving.roll().id
    report = serving.roll(resume=True, job={"made_by": Record("other@there", "2031-01-01T00:00:00Z", "0")})
    assert report.id == first
    assert report.exit_code == 0


def test_another_inventory_than_the_one_that_it_began_with_is_not_resumed(serving: Fleet) -> None:
    serving.host("r2").system.change(proofs={"b": "far"}, mends="b")
    serving.roll()
    serving.want(environment={"NEW": "2"})
    with pytest.raises(NearsocketError, match="expected the inventory that rollout"):
        serving.roll(resume=True)
    assert serving.ends(anew=True) == VERIFIED
    assert serving.ends() == dict.fromkeys(NAMES, "current")


def test_there_is_nothing_to_resume_where_nothing_was_left(serving: Fleet) -> None:
    with pytest.raises(NearsocketError, match="expected a rollout to resume, found none"):
        serving.roll(resume=True)


@pytest.mark.parametrize("done_first", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("host", ["r1", "r3"])
@pytest.mark.parametrize("what", [APPLY, PROOF, MARK])
def test_a_client_that_is_lost_in_any_phase_is_resumed_and_no_replica_is_lost(
    serving: Fleet, what: str, host: str, done_first: bool
) -> None:
    serving.host(host).lose = (what, done_first)
    serving.killed()
    assert all(one.starts().keys() == {"a", "b"} for one in serving.hosts)
    left = unfinished({one.name: one.left for one in serving.hosts})  # none where it was not begun, or came to its end
    report = serving.roll(resume=left is not None)
    assert report.exit_code == 0
    assert numbers(serving) == [2, 2, 2]
    assert all(one.starts().keys() == {"a", "b"} for one in serving.hosts)
    assert serving.ends() == dict.fromkeys(NAMES, "current")


@pytest.mark.parametrize("done_first", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("which", [1, 2])
def test_a_client_that_is_lost_on_the_way_back_is_resumed(serving: Fleet, which: int, done_first: bool) -> None:
    second = serving.host("r2")
    second.system.change(proofs={"b": "far"}, mends="b")
    applies = 0
    plain = second.run

    def run(command: str, stdin: bytes, timeout_s: float, children: object) -> object:
        nonlocal applies
        if applies == 1:
            second.lose = ((APPLY, MARK)[which - 1], done_first)
        try:
            return plain(command, stdin, timeout_s, children)
        finally:  # by what was asked, not by the log: signs of life are sent beside it
            applies += parsed(stdin)[0] == APPLY

    second.run = run  # type: ignore[method-assign,assignment]
    serving.killed()
    second.lose, applies = None, -9
    assert serving.roll(resume=True).exit_code == 0
    assert second.starts().keys() == {"a", "b"}
    assert serving.ends() == dict.fromkeys(NAMES, "current")


def test_an_unreachable_host_stops_all_before_anything_is_changed_or_is_skipped(serving: Fleet) -> None:
    serving.host("r2").down = True
    report = serving.roll()
    assert report.exit_code == 2
    assert [host.end.value for host in report.hosts] == ["not-touched", "failed", "not-touched"]
    assert not {line.split()[1] for line in serving.log} & {APPLY, MARK}
    report = serving.roll(unreachable=Unreachable.SKIP)
    assert report.exit_code == 0
    assert [host.end.value for host in report.hosts] == ["verified", "skipped", "verified"]
    serving.host("r2").down = False
    assert serving.ends() == {"r1": "current", "r2": "verified", "r3": "current"}


def test_a_host_on_which_somebody_is_at_work_is_not_skipped_as_unreachable(serving: Fleet) -> None:
    with lock.exclusive(serving.host("r2").tree, "them@there", 0):
        report = serving.roll(unreachable=Unreachable.SKIP)
    assert [host.end.value for host in report.hosts] == ["not-touched", "failed", "not-touched"]
    assert "them@there" in str(report.hosts[1].reason)


def test_a_host_that_is_lost_during_its_turn_is_told_of_and_goes_on_by_itself(serving: Fleet) -> None:
    serving.host("r2").broken[APPLY] = "expected an answer, found that the connection broke off"
    report = serving.roll()
    assert [host.end.value for host in report.hosts] == ["verified", "failed", "not-touched"]
    assert "--resume" in str(report.hosts[1].hint)
    assert serving.roll(resume=True).exit_code == 0


def test_a_host_that_would_refuse_stops_all_before_anything_is_changed(serving: Fleet) -> None:
    serving.host("r3").system.change(loaded={"nearsocket-sglang-a.service": "theirs"})
    (serving.host("r3").root / "etc/nearsocket/freeze").write_text("reason: audit week\n")
    report = serving.roll()
    assert report.exit_code == 2
    assert [host.end.value for host in report.hosts] == ["not-touched", "not-touched", "failed"]
    assert "audit week" in str(report.hosts[2].reason)
    assert numbers(serving) == [1, 1, 1]


def test_a_check_changes_nothing_and_says_what_would_be(serving: Fleet) -> None:
    report = serving.roll(check=True)
    assert report.exit_code == 4
    assert {host.end.value for host in report.hosts} == {"pending"}
    assert all("restart unit nearsocket-sglang-a.service" in host.changes for host in report.hosts)
    assert {line.split()[1] for line in serving.log} == {SURVEY, DRY}
    serving.want()
    report = serving.roll(check=True)
    assert report.exit_code == 0
    assert {host.end.value for host in report.hosts} == {"current"}


def reviewed(fleet: Fleet) -> Reviewed:
    """The plan that a check saves, read back."""
    came = Came()
    report = fleet.roll(came, check=True)
    made = Reviewed(report.job, report.by, report.started_at, tuple(map(planned, came.looked.values())))
    assert from_json(made.to_json()) == made
    return made


def test_a_reviewed_plan_is_carried_out_and_again_where_it_was_cut_short(serving: Fleet) -> None:
    plan = reviewed(serving)
    serving.host("r2").lose = (MARK, False)
    serving.killed(reviewed=plan)
    assert serving.roll(reviewed=plan, resume=True).exit_code == 0
    assert numbers(serving) == [2, 2, 2]


def test_a_reviewed_plan_is_refused_where_a_generation_what_is_rendered_or_the_host_moved(serving: Fleet) -> None:
    plan = reviewed(serving)
    serving.want(environment={"NEW": "2"})
    report = serving.roll(reviewed=plan)
    assert report.exit_code == 2
    assert "what is rendered for it" in str(report.hosts[0].reason)
    serving.want(environment={"OTHER": "1"})
    serving.roll(targets=serving.targets[:1])
    serving.want(environment={"NEW": "1"})
    report = serving.roll(reviewed=plan)
    assert "expected 1 (sha256:" in str(report.hosts[0].reason)
    moved = dataclasses.replace(plan, hosts=tuple(dataclasses.replace(one, fingerprint="sha256:x") for one in plan.hosts))
    assert "what it rests on (fingerprint)" in str(serving.roll(reviewed=moved).hosts[1].reason)
    assert numbers(serving)[1:] == [1, 1]


def test_an_empty_selection_is_a_slip(serving: Fleet) -> None:
    with pytest.raises(UsageError, match="empty selection"):
        serving.roll(targets=())
