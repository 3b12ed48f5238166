"""What is no reason to take a driver back, and what becomes of a host on its way back whose client is gone."""

from __future__ import annotations

from typing import Any

import pytest

from nearsocket.control.reprovision import ask, measuring
from nearsocket.control.reprovision.ask import HostLost
from nearsocket.control.reprovision.job import Reprovision
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.control.rollout.job import Place, Ready
from nearsocket.control.target import Target, Way
from nearsocket.control.transport import Answer as Said
from nearsocket.control.transport import Transport, TransportError, Trouble
from nearsocket.control.transport.process import Children
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Action, Answer, Order, Phase
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout.plan import Entry, Reviewed
from nearsocket.model.rollout.report import End
from nearsocket.onhost.reprovision import kept, steps
from nearsocket.onhost.reprovision.work import Work
from tests.control.reprovision.fleet import Fleet
from tests.onhost.reprovision.conftest import UNITS
from tests.onhost.reprovision.standin import NEW, OLD, STANDINS


class Slower:
    """All-reduces that are slower while `bad`; the client dies in the way back's step `dies_at`."""

    def __init__(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, dies_at: Action | None = None) -> None:
        self.fleet, self.dies_at, self.bad = fleet, dies_at, True
        monkeypatch.setattr(measuring, "compared", self)

    def __call__(self, *_: Any) -> Compared:
        if self.bad:
            self.fleet.lines["r1"].dies_at = self.dies_at
            raise NearsocketError("slower")
        return Compared((), ("a", "b"))


def test_after_a_silent_upgrade_a_failure_leaves_the_host_able_to_go_forward(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fleet.lines["r1"].machine
    for name in STANDINS:
        machine._set(name, version=f"{NEW}-0standin1")
    machine.change(modules=dict.fromkeys(machine.state["modules"], NEW))
    slower = Slower(fleet, monkeypatch)
    first = fleet.go()
    assert "found that the upgrade was not made here" in str(first.hosts[0].reason)
    assert "--resume" in str(first.hosts[0].hint)
    slower.bad = False
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]
    site = fleet.site("r1")
    assert (site.up, kept.held(site.tree), site.state.phase) == (set(UNITS), (), Phase.DONE)


@pytest.mark.parametrize("at", [Action.AFTER, Action.START, Action.BACK])
def test_a_way_back_whose_client_died_is_closed_and_the_next_resume_goes_forward(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, at: Action
) -> None:
    slower = Slower(fleet, monkeypatch, at)
    with pytest.raises(KeyboardInterrupt):
        fleet.go()
    slower.bad = False
    first = fleet.go(resume=True)
    assert "it was on the way back to" in str(first.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up, fleet.site("r1").state.phase) == ({OLD}, set(UNITS), Phase.DONE)
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]


def test_anew_turns_a_host_round_that_is_on_its_way_back(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    slower = Slower(fleet, monkeypatch, Action.BACK)
    with pytest.raises(KeyboardInterrupt):
        fleet.go()
    slower.bad = False
    report = fleet.go(resume=True, anew=True)
    assert fleet.ends(report) == [End.VERIFIED, End.VERIFIED]
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({NEW}, set(UNITS))


@pytest.mark.parametrize("step", [Action.FINISH])
def test_what_cannot_be_tidied_up_behind_good_proofs_is_a_note_and_no_way_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, step: Action
) -> None:
    real, calls = steps.STEPS[step], []

    def full(work: Work) -> Answer:
        calls.append(work)
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        return real(work)

    monkeypatch.setitem(steps.STEPS, step, full)  # type: ignore[index]
    report = fleet.go()
    assert fleet.ends(report) == [End.VERIFIED, End.VERIFIED]
    assert fleet.site("r1").versions == {NEW}
    assert any("all is proven, and not closed on the host" in note for note in report.hosts[0].notes)
    fleet.go()
    assert fleet.site("r1").state.phase is Phase.DONE


def test_a_replica_that_was_down_before_is_said_and_judged_by_nobody(fleet: Fleet) -> None:
    machine = fleet.lines["r1"].machine
    active = machine.state["active"]
    active.pop(UNITS[0])
    machine.change(active=active)
    report = fleet.go()
    assert fleet.ends(report) == [End.VERIFIED, End.VERIFIED]
    assert fleet.site("r1").up == {UNITS[1]}
    assert any("replica a did not run before" in note for note in report.hosts[0].notes)


def test_packages_of_two_versions_are_not_current_though_the_module_is(fleet: Fleet) -> None:
    machine = fleet.lines["r1"].machine
    machine._set(STANDINS[0], version=f"{NEW}-0standin1")
    machine.change(module=NEW)
    (fleet.site("r1").root / "sys/module/nvidia/version").write_text(f"{NEW}\n")
    report = fleet.go()
    assert report.exit_code == 2
    assert "packages of several versions" in str(report.hosts[0].reason)


def test_a_plan_rests_on_the_transactions_words(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Reprovision(NEW, "ops", (), check=True)
    place = Place(fleet.targets[0], fleet.lines["r1"], Children())

    def ready() -> Ready[Any]:
        return made.prepare(place, made.survey(place, 0.0), ahead=True)

    then = ready()
    entry = Entry("r1", then.current, then.digest, then.wanted, then.fingerprint, then.changes)
    plan = Reviewed("reprovision", "ops", "now", (entry,))
    assert plan.refusal("r1", ready()) is None
    repo = fleet.lines["r1"].machine.state["repo"]
    fleet.lines["r1"].machine.change(repo={name: [f"{NEW}-9other1", *versions] for name, versions in repo.items()})
    assert "what it rests on (fingerprint)" in str(plan.refusal("r1", ready()))


class Told(Transport):
    """A host that answers each step; the reboot's first answers are cut and it never hears of them."""

    def __init__(self, cuts: int) -> None:
        self.boot, self.cuts, self.asked, self.now = "b1", cuts, [], 0.0

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Said:
        order = orders.order_from_json(stdin.decode())
        self.asked.append(order.action)
        if order.action is Action.REBOOT:
            if self.cuts:
                self.cuts -= 1
                raise TransportError(Trouble.TIMEOUT, "no answer", "")
            self.boot = "b2"
        return Said(Answer(order.action, boot_id=self.boot).to_json().encode(), "", 0.0)

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask.program, "payload", lambda _words, given: given)


@pytest.mark.usefixtures("plain")
def test_a_reboot_that_never_arrived_is_asked_for_again() -> None:
    host = Told(1)
    place = Place(Target("h", Way.LOCAL), host, Children())
    ask.reboot(place, Order(Action.STATUS, "i", "b", NEW), 1200.0, lambda: host.now, host.pause)
    assert (host.asked.count(Action.REBOOT), host.now) == (2, 62.0)


@pytest.mark.usefixtures("plain")
def test_an_interrupt_ends_the_wait_for_a_reboot() -> None:
    host, children = Told(9), Children()

    def pause(seconds: float) -> None:
        host.pause(seconds)
        if host.now >= 4.0:
            children.end_all()

    with pytest.raises(HostLost, match="given up by an interrupt"):
        ask.reboot(
            Place(Target("h", Way.LOCAL), host, children), Order(Action.STATUS, "i", "b", NEW), 1200.0, lambda: host.now, pause
        )
    assert host.now == 4.0


def test_who_resumes_waits_for_a_reboot_as_long_as_its_limit_says(fleet: Fleet) -> None:
    fleet.lines["r1"].away_s = None
    assert fleet.ends(fleet.go(reboot_limit_s=60.0)) == [End.FAILED, End.UNTOUCHED]
    fleet.lines["r1"].away_s = fleet.clock.now + 5000.0
    assert fleet.ends(fleet.go(resume=True, reboot_limit_s=7200.0)) == [End.VERIFIED, End.VERIFIED]
