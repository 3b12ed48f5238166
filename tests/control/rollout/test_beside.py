"""A rollout beside another client, on hosts that changed since the look, and over connections that lose an answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from nearsocket.control.rollout import earlier, run
from nearsocket.control.rollout.came import Came
from nearsocket.control.rollout.look import planned
from nearsocket.control.rollout.run import Manner
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.model.compare import figures
from nearsocket.model.errors import NearsocketError
from nearsocket.model.places import hold_file
from nearsocket.model.rollout.plan import Reviewed
from nearsocket.model.rollout.progress import Phase, Progress
from nearsocket.model.rollout.report import RolloutReport
from nearsocket.onhost.apply import progress
from tests.control.rollout.fleet import APPLY, MARK, PROOF, Fleet, make

NAMES = ("r1", "r2", "r3")


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Three hosts whose replicas serve from generation 1, and a change in the inventory that restarts them."""
    fleet = make(tmp_path, NAMES, monkeypatch)
    assert fleet.ends() == dict.fromkeys(NAMES, "verified")
    fleet.want(environment={"NEW": "1"})
    fleet.log.clear()
    return fleet


def ends(report: RolloutReport) -> list[str]:
    return [host.end.value for host in report.hosts]


def numbers(fleet: Fleet) -> list[int | None]:
    return [host.tree.number() for host in fleet.hosts]


def colleague(fleet: Fleet, names: tuple[str, ...], environment: dict[str, str], **manner: bool) -> RolloutReport:
    """Another user's whole rollout over these hosts."""
    mine = fleet.settings
    fleet.want(environment=environment)
    try:
        targets = [target for target in fleet.targets if target.name in names]
        return run.rollout(fleet.job, targets, Manner("them@there", wait_s=0.0, **manner), Came())
    finally:
        fleet.settings = mine


def before(fleet: Fleet, name: str, what: str, act: Callable[[], object]) -> None:
    """Once, as that host is about to be asked that, something else happens."""
    host = fleet.host(name)
    plain = host.run

    def asked(command: str, stdin: bytes, timeout_s: float, children: object) -> object:
        if what.encode() in stdin:
            host.run = plain  # type: ignore[method-assign]
            act()
        return plain(command, stdin, timeout_s, children)

    host.run = asked  # type: ignore[method-assign,assignment]


def test_an_answer_of_the_proof_that_is_lost_once_is_asked_for_again_and_nothing_is_taken_back(serving: Fleet) -> None:
    serving.host("r1").broken[PROOF] = "expected an answer, found the connection closed"
    report = serving.roll()
    assert ends(report) == ["verified"] * 3
    assert numbers(serving) == [2, 2, 2]
    assert serving.log.count(f"r1 {APPLY}") == 1


def test_a_host_that_gives_no_answer_to_the_proof_is_lost_and_not_taken_back_and_a_resume_proves_it(serving: Fleet) -> None:
    host = serving.host("r1")
    plain = host.run

    def cut(command: str, stdin: bytes, timeout_s: float, children: object) -> object:
        if b"verdicts\0--timeout" in stdin:
            raise TransportError(Trouble.ANSWER, "expected an answer, found the connection closed", "look at it")
        return plain(command, stdin, timeout_s, children)

    host.run = cut  # type: ignore[method-assign,assignment]
    report = serving.roll()
    assert ends(report) == ["failed", "not-touched", "not-touched"]
    assert "nothing is taken back" in str(report.hosts[0].reason)
    assert numbers(serving) == [2, 1, 1]
    assert host.left is not None
    assert host.left.phase is Phase.APPLIED
    host.run = plain  # type: ignore[method-assign]
    begun = host.starts()
    assert ends(serving.roll(resume=True)) == ["verified"] * 3
    assert host.starts() == begun


def test_what_a_colleague_made_of_a_host_after_the_look_is_not_overwritten(serving: Fleet) -> None:
    def deployed(found: object) -> None:
        if getattr(found, "name", "") == "r1":
            assert ends(colleague(serving, ("r2",), {"OTHER": "9"})) == ["verified"]

    report = run.rollout(serving.job, serving.targets, Manner("ops@here", wait_s=0.0), Came(), deployed)
    assert ends(report) == ["verified", "failed", "not-touched"]
    assert "by them@there" in str(report.hosts[1].reason)
    assert [host.left.by for host in serving.hosts[:2] if host.left] == ["ops@here", "them@there"]
    assert serving.log.count(f"r2 {APPLY}") == 1


def test_a_reviewed_plan_holds_at_each_hosts_turn(serving: Fleet) -> None:
    came = Came()
    made = serving.roll(came, check=True)
    plan = Reviewed(made.job, made.by, made.started_at, tuple(map(planned, came.looked.values())))

    def deployed(found: object) -> None:
        if getattr(found, "name", "") == "r1":  # by a way that leaves no record, as deploys/site.py
            kept = serving.host("r2").tree.rollout.read_bytes()
            colleague(serving, ("r2",), {"OTHER": "9"})
            serving.host("r2").tree.rollout.write_bytes(kept)

    report = run.rollout(serving.job, serving.targets, Manner("me", wait_s=0.0, reviewed=plan), Came(), deployed)
    assert ends(report) == ["verified", "failed", "not-touched"]
    assert "in force as reviewed" in str(report.hosts[1].reason)
    assert serving.log.count(f"r2 {APPLY}") == 1


def by_hand(fleet: Fleet, name: str) -> None:
    """A deploy that leaves no record: `deploys/site.py` from an inventory of its own."""
    record = fleet.host(name).tree.rollout
    kept = record.read_bytes()
    assert ends(colleague(fleet, (name,), {"OTHER": "9"}, anew=True)) == ["verified"]
    record.write_bytes(kept)


def at_its_apply(fleet: Fleet, name: str, act: Callable[[], object]) -> None:
    """Once, between the survey of the host's turn and its apply; the first one is the look's dry run."""
    before(fleet, name, "apply\0--holder", lambda: before(fleet, name, "apply\0--holder", act))


def test_a_deploy_by_hand_between_a_turns_survey_and_its_apply_is_not_built_upon(serving: Fleet) -> None:
    at_its_apply(serving, "r2", lambda: by_hand(serving, "r2"))
    report = serving.roll()
    assert (report.exit_code, ends(report)) == (2, ["verified", "failed", "not-touched"])
    told = report.hosts[1]
    assert "expected generation 1 (sha256:" in str(told.reason)
    assert "found generation 2 (sha256:" in str(told.reason)
    assert "nothing was changed there" in str(told.reason)
    assert (told.before, told.after) == ("1", "2")
    assert "roll back" not in told.took_s
    assert numbers(serving) == [2, 2, 1]
    assert b"OTHER=9" in b"".join(path.read_bytes() for path in serving.host("r2").tree.current.rglob("*") if path.is_file())
    assert ends(serving.roll(resume=True)) == ["verified-earlier", "verified", "verified"]
    assert numbers(serving) == [2, 3, 2]


def test_a_deploy_by_hand_is_not_taken_back_by_who_resumes_either(serving: Fleet) -> None:
    """There is another generation to go back to than the one in force then, and still nothing is taken back."""
    host = serving.host("r1")
    host.prove(b="far")
    host.lose = (APPLY, True)
    serving.killed()
    assert host.left is not None
    assert (host.left.previous, host.tree.number()) == ("1", 2)
    host.prove()
    at_its_apply(serving, "r1", lambda: by_hand(serving, "r1"))
    report = serving.roll(resume=True)
    assert ends(report) == ["failed", "not-touched", "not-touched"]
    assert "found generation 3 (sha256:" in str(report.hosts[0].reason)
    assert numbers(serving) == [3, 1, 1]
    assert ends(serving.roll(resume=True)) == ["verified"] * 3


def test_a_way_back_asks_for_no_generation(serving: Fleet) -> None:
    """It follows an apply of its own, and has to come to its end whatever that one left in force."""
    serving.host("r1").system.change(proofs={"b": "far"}, mends="b")
    assert ends(serving.roll()) == ["rolled-back", "not-touched", "not-touched"]
    host = serving.host("r2")
    host.broken[APPLY] = "expected an answer, found the connection closed"
    assert ends(serving.roll(resume=True)) == ["verified", "failed", "not-touched"]
    assert ends(serving.roll(resume=True)) == ["verified-earlier", "verified", "verified"]


@pytest.mark.parametrize("phase", [Phase.BEGUN, Phase.VERIFIED])
def test_another_rollouts_record_since_the_look_is_left_alone(serving: Fleet, phase: Phase) -> None:
    other = Progress("other0", "site", "them@there", "2029-01-01T00:00:00Z", "r2", {"r2": "x"}, phase=phase)
    before(serving, "r2", "apply\0--holder", lambda: before(serving, "r2", "apply\0--holder", lambda: take(serving, other)))
    report = serving.roll()
    assert ends(report) == ["verified", "failed", "not-touched"]
    assert "found it in other0 by them@there; nothing was changed there" in str(report.hosts[1].reason)
    assert serving.host("r2").left == other
    assert numbers(serving) == [2, 1, 1]


def take(fleet: Fleet, other: Progress) -> None:
    progress.write(fleet.host("r2").tree, other)


def test_a_client_whose_rollout_was_begun_anew_by_a_colleague_takes_nothing_of_that_ones_back(serving: Fleet) -> None:
    """The colleague comes between the apply and its proof; that proof is bad, and the way back would undo the colleague's work."""
    host = serving.host("r1")

    def anew() -> None:
        assert ends(colleague(serving, NAMES, {"OTHER": "9"}, anew=True)) == ["verified"] * 3
        state = host.system.state
        for one in state["active"].values():
            one["proof"] = "far"
        host.system.change(active=state["active"])

    before(serving, "r1", "verdicts\0--timeout", anew)
    report = serving.roll()
    assert ends(report) == ["failed", "not-touched", "not-touched"]
    assert "by them@there" in str(report.hosts[0].reason)
    assert numbers(serving) == [3, 2, 2]
    assert [one.left.by for one in serving.hosts if one.left] == ["them@there"] * 3


def test_a_client_that_is_resumed_by_a_colleague_while_it_works_stops_and_the_colleague_ends_it(serving: Fleet) -> None:
    reports = []
    again = {"NEW": "1"}
    before(serving, "r1", "verdicts\0--timeout", lambda: reports.append(colleague(serving, NAMES, again, resume=True)))
    report = serving.roll()
    assert ends(reports[0]) == ["verified"] * 3
    assert ends(report) == ["failed", "not-touched", "not-touched"]
    assert "another client at work on it" in str(report.hosts[0].reason)
    assert numbers(serving) == [2, 2, 2]
    assert serving.ends() == dict.fromkeys(NAMES, "current")


def test_begun_anew_behind_a_killed_one_a_host_goes_back_to_what_was_last_proven(serving: Fleet) -> None:
    host = serving.host("r1")
    host.system.change(proofs={"a": "far"})
    host.lose = (APPLY, True)
    serving.killed()
    assert host.tree.number() == 2
    serving.want(environment={"NEW": "2"})
    host.system.change(mends="a")
    report = serving.roll(anew=True)
    assert ends(report) == ["rolled-back", "not-touched", "not-touched"]
    assert (report.hosts[0].before, host.tree.number()) == ("1", 1)


def test_what_was_begun_anew_and_finds_all_done_is_at_its_end(serving: Fleet) -> None:
    serving.host("r1").lose = (MARK, False)
    serving.killed()
    assert set(serving.ends(anew=True).values()) == {"verified"}
    assert serving.ends() == dict.fromkeys(NAMES, "current")


def test_a_host_that_a_driver_upgrade_holds_stops_all_before_anything_is_changed(serving: Fleet) -> None:
    hold = serving.host("r2").tree.at(hold_file("a"))
    hold.parent.mkdir(parents=True, exist_ok=True)
    hold.write_text("a driver upgrade by them@there\n")
    for check in (True, False):
        report = serving.roll(check=check)
        assert report.exit_code == 2
        assert "a driver upgrade by them@there" in str(report.hosts[1].reason)
    assert numbers(serving) == [1, 1, 1]


def test_the_first_host_with_something_to_do_is_the_canary(serving: Fleet) -> None:
    assert ends(serving.roll(targets=serving.targets[:1])) == ["verified"]
    for name in ("r2", "r3"):
        serving.host(name).prove(a="far")
    report = serving.roll(max_unavailable=2)
    assert ends(report)[2] == "not-touched"
    assert numbers(serving)[2] == 1


def test_a_record_from_the_end_of_time_is_no_obstacle(serving: Fleet) -> None:
    late = "9999-12-31T23:59:59Z"
    made = Progress("other0", "site", "them@there", late, "r2", {"r2": "x"}, phase=Phase.VERIFIED, closed=True)
    progress.write(serving.host("r2").tree, made)
    assert earlier.beginning("2030-01-01T00:00:00Z", {"r2": made}) == "2030-01-01T00:00:00Z"
    assert serving.ends() == dict.fromkeys(NAMES, "verified")


def test_a_baseline_that_is_nested_without_end_is_no_figure() -> None:
    assert figures.from_values(["[" * 200_000]) == ()


def test_only_the_record_that_a_client_saw_gives_way_to_it() -> None:
    mine = Progress("x", "site", "ops@here", "2030-01-01T00:00:00Z", "h", {"h": "w"}, client="1", over="w/7")
    mine.refuse_taken(None)
    mine.refuse_taken(mine)
    mine.refuse_taken(dataclasses.replace(mine, id="w", client="7"))
    for other in (dataclasses.replace(mine, client="2"), dataclasses.replace(mine, id="w", client="8")):
        with pytest.raises(NearsocketError, match="expected this host in rollout x"):
            mine.refuse_taken(other)
