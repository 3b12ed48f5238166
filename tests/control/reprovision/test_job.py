"""The job reprovision over a fleet of stand-in machines: the real steps on each, a transport that a reboot takes along."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from nearsocket.control.reprovision import ask, job, measuring
from nearsocket.control.reprovision.job import Reprovision
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.control.rollout.job import Place
from nearsocket.control.target import Ssh, Target, Way
from nearsocket.control.transport import Answer as Said
from nearsocket.control.transport import Transport, TransportError
from nearsocket.control.transport.process import Children
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Action, Order, Phase
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.rollout.report import End
from tests.control.reprovision.fleet import Fleet, Line
from tests.onhost.reprovision.conftest import UNITS
from tests.onhost.reprovision.standin import NEW, OLD, STANDINS


def test_hosts_are_upgraded_in_order_and_one_serves_while_the_other_is_worked_on(fleet: Fleet) -> None:
    other: list[set[str]] = []
    fleet.clock.heard.append(lambda: other.append(fleet.site("r2").up if fleet.lines["r1"].ends_at is not None else set(UNITS)))
    report = fleet.go()
    assert (fleet.ends(report), report.exit_code) == ([End.VERIFIED, End.VERIFIED], 0)
    assert all(up == set(UNITS) for up in other)
    for name in ("r1", "r2"):
        site = fleet.site(name)
        assert (site.versions, site.machine.state["module"], site.up, site.held) == ({NEW}, NEW, set(UNITS), set(STANDINS))
        assert site.state.phase is Phase.DONE
    assert report.hosts[0].notes[-2:] == ("all-reduces as fast as before", "better: driver")
    again = fleet.go()
    assert fleet.ends(again) == [End.CURRENT, End.CURRENT]


def test_every_host_is_rehearsed_before_anything_is_stopped_on_any(fleet: Fleet) -> None:
    fleet.lines["r2"].machine.fault("brake")
    report = fleet.go()
    assert report.exit_code == 2
    assert fleet.ends(report) == [End.UNTOUCHED, End.FAILED]
    assert "brake would be removed" in str(report.hosts[1].reason)
    for name in ("r1", "r2"):
        assert (fleet.site(name).up, fleet.site(name).versions) == (set(UNITS), {OLD})
        assert not {"prepare", "upgrade", "reboot"} & set(fleet.lines[name].asked)


def test_what_the_rehearsal_could_not_try_is_in_the_report_of_a_host_that_was_upgraded(fleet: Fleet) -> None:
    site = fleet.site("r1")
    site.machine.change(repo={name: [v for v in versions if NEW in v] for name, versions in site.machine.state["repo"].items()})
    report = fleet.go()
    assert fleet.ends(report) == [End.VERIFIED, End.VERIFIED]
    assert sum("no way back" in note for note in report.hosts[0].notes) == 1
    assert not [note for note in report.hosts[1].notes if "no way back" in note]


def test_a_check_changes_nothing_and_says_what_would_be_done(fleet: Fleet) -> None:
    report = fleet.go(check=True)
    assert (fleet.ends(report), report.exit_code) == ([End.PENDING, End.PENDING], 4)
    assert "reboot" in report.hosts[0].changes
    assert set(fleet.lines["r1"].asked) == {"status", "preflight"}


def test_a_shutdown_that_takes_a_minute_is_waited_out_and_no_old_sshd_is_believed(fleet: Fleet) -> None:
    fleet.lines["r1"].down_s = 60.0
    report = fleet.go()
    assert fleet.ends(report) == [End.VERIFIED, End.VERIFIED]
    assert fleet.lines["r1"].asked.count("status") > 20


def test_a_host_that_never_comes_back_ends_the_rollout_at_the_limit_with_one_line(fleet: Fleet) -> None:
    fleet.lines["r1"].away_s = None
    report = fleet.go(reboot_limit_s=120.0)
    assert (fleet.ends(report), report.exit_code) == ([End.FAILED, End.UNTOUCHED], 2)
    assert "expected the host to come back from its reboot within 120 s, found: " in str(report.hosts[0].reason)
    assert fleet.site("r2").up == set(UNITS)
    # Back by itself later: anybody goes on.
    fleet.lines["r1"].away_s = 0.0
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]


def test_slower_all_reduces_take_the_host_back_and_stop_the_fleet(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def slower(*_: Any) -> Compared:
        raise NearsocketError("replica a: all-reduces are slower than with the driver before: 48 MiB takes 240 %")

    monkeypatch.setattr(measuring, "compared", slower)
    report = fleet.go()
    assert (fleet.ends(report), report.exit_code) == ([End.ROLLED_BACK, End.UNTOUCHED], 2)
    site = fleet.site("r1")
    assert (site.versions, site.machine.state["module"], site.up, site.held) == ({OLD}, OLD, set(UNITS), set(STANDINS))
    assert "slower than with the driver before" in str(report.hosts[0].reason)
    assert fleet.site("r2").versions == {OLD}


def test_a_replica_that_is_not_proven_takes_the_host_back_where_nothing_else_proves_the_driver(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared(("replica a: no all-reduce was measured",), ("b",)))
    fleet.lines["r1"].unproven = True
    report = fleet.go()
    assert fleet.ends(report) == [End.ROLLED_BACK, End.UNTOUCHED]
    assert (fleet.site("r1").machine.state["module"], fleet.site("r1").up) == (OLD, set(UNITS))


def test_a_failing_transaction_goes_back_without_a_reboot(fleet: Fleet) -> None:
    fleet.lines["r1"].machine.fault("boot-full")
    report = fleet.go()
    # The way back makes a RAM disk too: it is full still, and that is said.
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    assert "THE WAY BACK FAILED TOO" in str(report.hosts[0].reason)
    fleet.lines["r1"].machine.fault()
    again = fleet.go(resume=True)
    assert "it was on the way back to" in str(again.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({OLD}, set(UNITS))
    assert fleet.site("r1").machine.state["boot_id"] == "boot-1"


def test_the_mismatch_window_is_repaired_by_the_reboot_and_the_proofs(fleet: Fleet) -> None:
    machine = fleet.lines["r1"].machine
    for name in STANDINS:
        machine._set(name, version=f"{NEW}-0standin1")
    machine.change(modules=dict.fromkeys(machine.state["modules"], NEW))
    report = fleet.go()
    assert fleet.ends(report)[0] is End.VERIFIED
    assert fleet.site("r1").installs() == 0
    assert machine.state["module"] == NEW


@pytest.mark.parametrize("at", [Action.PREPARE, Action.UPGRADE, Action.REBOOT, Action.AFTER, Action.START, Action.FINISH])
def test_a_client_that_dies_in_any_phase_is_gone_on_with_by_another(fleet: Fleet, at: Action) -> None:
    fleet.lines["r1"].dies_at = at
    with pytest.raises(KeyboardInterrupt):
        fleet.go()
    assert fleet.site("r2").up == set(UNITS)
    if at is not Action.FINISH:
        with pytest.raises(NearsocketError, match="expected no rollout that is not at its end"):
            fleet.go()
    report = fleet.go(resume=True)
    assert fleet.ends(report)[1] is End.VERIFIED, report
    assert fleet.ends(report)[0] in (End.VERIFIED, End.EARLIER)
    site = fleet.site("r1")
    assert (site.versions, site.machine.state["module"], site.up, site.held) == ({NEW}, NEW, set(UNITS), set(STANDINS))
    assert site.installs() == 1


def test_replicas_that_were_started_before_the_client_died_are_not_measured_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ranks would be refused: the GPUs are in use, and that is no fault of the driver's."""
    fleet.lines["r1"].dies_at = Action.START
    with pytest.raises(KeyboardInterrupt):
        fleet.go()

    def refused(place: Place, *_: Any) -> Compared:
        if place.target.name == "r1":
            raise NearsocketError("r1: a: refused: process 4242 holds the GPU")
        return Compared()

    monkeypatch.setattr(measuring, "compared", refused)
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]


def test_on_the_way_back_one_replica_that_does_not_start_keeps_no_other_down(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def slower(*_: Any) -> Compared:
        fleet.lines["r1"].machine.change(broken=[UNITS[0]])
        raise NearsocketError("replica a: all-reduces are slower")

    boot = fleet.lines["r1"].machine.boot

    def boots() -> None:
        broken = fleet.lines["r1"].machine.state["broken"]
        boot()
        fleet.lines["r1"].machine.change(broken=broken)

    monkeypatch.setattr(fleet.lines["r1"].machine, "boot", boots)
    monkeypatch.setattr(measuring, "compared", slower)
    report = fleet.go()
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    assert "THE WAY BACK FAILED TOO: expected nearsocket-x-a.service to start" in str(report.hosts[0].reason)
    assert fleet.site("r1").up == {UNITS[1]}


def test_a_version_that_is_none_is_wrong_usage() -> None:
    for word in (None, "latest", "580"):
        with pytest.raises(UsageError, match="expected a driver's version"):
            job.target_version(word)


def test_this_machine_is_refused(tmp_path: Path) -> None:
    place = Place(Target("here", Way.LOCAL), Line.__new__(Line), Children())
    with pytest.raises(UsageError, match="cannot outlive its own reboot"):
        Reprovision(NEW, "ops", ()).survey(place, 0.0)


def test_an_answer_that_is_cut_is_told_with_what_to_do() -> None:
    class Cut(Transport):
        def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Said:
            return Said(json.dumps({"schema": orders.ANSWER}).encode()[:20], "", 0.0)

    place = Place(Target("r1", Way.SSH, ssh=Ssh("r1")), Cut(), Children())
    with pytest.raises(TransportError, match="expected nearsocket") as cut:
        ask.step(place, Order(Action.STATUS, "id", "ops", NEW))
    assert "--resume" in str(cut.value.hint)


def test_orders_may_carry_a_freeze(fleet: Fleet) -> None:
    from nearsocket.model.freeze import Freeze

    frozen = dataclasses.replace(fleet.targets[0], freeze=Freeze(None, "audit week", "the inventory"))
    fleet.targets[0] = frozen
    report = fleet.go()
    assert report.exit_code == 2
    assert "audit week" in str(report.hosts[0].reason)
    assert fleet.site("r1").up == set(UNITS)
