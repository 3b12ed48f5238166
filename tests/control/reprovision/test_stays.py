"""A start that fails behind a driver that is proven: the host fails, the driver stays; there is a way forward and a way back."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.control.reprovision import measuring
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Phase
from nearsocket.model.freeze import Freeze
from nearsocket.model.rollout.report import End
from nearsocket.onhost.reprovision import kept
from tests.control.reprovision.fleet import Fleet
from tests.onhost.reprovision.conftest import UNITS
from tests.onhost.reprovision.standin import NEW, OLD


def broken(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, *units: str) -> None:
    """From now on these do not start on the first host, whatever boots."""
    machine = fleet.lines["r1"].machine
    boot = machine.boot

    def boots() -> None:
        boot()
        machine.change(broken=list(units))

    machine.change(broken=list(units))
    monkeypatch.setattr(machine, "boot", boots)


def test_a_start_that_fails_behind_a_proven_driver_fails_the_host_and_takes_nothing_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(fleet, monkeypatch, UNITS[0])
    report = fleet.go()
    assert (fleet.ends(report), report.exit_code) == ([End.FAILED, End.UNTOUCHED], 2)
    said = str(report.hosts[0].reason)
    assert said.startswith(f"expected {UNITS[0]} to start, found: ")
    assert f"the driver {NEW} is proven (versions, GPUs, all-reduces of that replica), so it stays" in said
    assert "--resume" in str(report.hosts[0].hint)
    site = fleet.site("r1")
    assert (site.versions, site.machine.state["module"]) == ({NEW}, NEW)
    assert (site.up, kept.held(site.tree)) == ({UNITS[1]}, ("a",)), "the other one serves, and is let go for good"
    broken(fleet, monkeypatch)
    again = fleet.go(resume=True)
    assert fleet.ends(again) == [End.VERIFIED, End.VERIFIED]
    assert (site.up, kept.held(site.tree), site.state.phase, site.installs()) == (set(UNITS), (), Phase.DONE, 1)


def test_it_fails_again_where_nothing_was_mended_and_still_stays(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(fleet, monkeypatch, UNITS[0])
    fleet.go()
    again = fleet.go(resume=True)
    assert fleet.ends(again) == [End.FAILED, End.UNTOUCHED]
    assert "so it stays" in str(again.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({NEW}, {UNITS[1]})


def test_resumed_a_held_replica_without_its_gpus_takes_no_driver_back_from_those_that_serve(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(fleet, monkeypatch, UNITS[0])
    fleet.go()
    site = fleet.site("r1")
    site.machine.fault("gpu-unseen")
    report = fleet.go(resume=True)
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    said = str(report.hosts[0].reason)
    assert said.startswith("expected the container of replica a to see 1 GPUs, found 0 (libcuda); ")
    assert f"the driver {NEW} was proven before and replicas were started behind it, so it stays" in said
    assert "then --resume" in str(report.hosts[0].hint)
    assert "back" not in fleet.lines["r1"].asked
    assert (site.versions, site.machine.state["module"], site.up, kept.held(site.tree)) == ({NEW}, NEW, {UNITS[1]}, ("a",))
    site.machine.fault()
    broken(fleet, monkeypatch)
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]
    assert site.up == set(UNITS)


def test_resumed_what_the_host_fails_in_while_all_replicas_serve_stays_open_until_it_is_mended(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(fleet, monkeypatch, UNITS[0])
    fleet.go()
    site, machine = fleet.site("r1"), fleet.site("r1").machine
    machine.change(broken=[])
    kept.let_go(site.tree, "a")
    machine(["systemctl", "start", UNITS[0]], 1)
    text = f'{{"kind": "nvidia.com/gpu", "hostPath": "/usr/lib/libcuda.so.{OLD}"}}'
    (site.root / "etc/cdi/nvidia.json").write_text(text)
    machine.change(cdi={"/etc/cdi/nvidia.json": text})
    machine.fault("no-ctk")
    report = fleet.go(resume=True)
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    assert "no nvidia-ctk" in str(report.hosts[0].reason)
    assert (site.up, site.versions, site.state.phase) == (set(UNITS), {NEW}, Phase.UPGRADED)
    machine.change(cdi={})
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]
    assert site.state.phase is Phase.DONE


def test_turned_round_forward_nothing_counts_as_started_that_was_before(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host says behind its turn decides, and not what it was when it was looked at."""
    broken(fleet, monkeypatch, UNITS[0])
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared((), ("b",)))
    fleet.go()
    assert fleet.site("r1").state.back
    broken(fleet, monkeypatch)
    machine = fleet.lines["r1"].machine
    boot = machine.boot

    def boots() -> None:
        boot()
        machine.fault(*(["gpu-unseen"] if machine.state["module"] == NEW else []))

    monkeypatch.setattr(machine, "boot", boots)
    report = fleet.go(anew=True)
    assert "so it stays" not in str(report.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({OLD}, set(UNITS))


def test_a_replica_whose_all_reduces_could_not_be_measured_takes_the_driver_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but its start would show that this driver works for it (one GPU, an image without torch)."""
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared(("replica a: no all-reduce was measured",), ("b",)))
    broken(fleet, monkeypatch, UNITS[0])
    report = fleet.go()
    assert "THE WAY BACK FAILED TOO" in str(report.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({OLD}, {UNITS[1]})


def test_what_is_unproven_once_all_are_up_takes_no_proven_driver_back_either(fleet: Fleet) -> None:
    fleet.lines["r1"].unproven = True
    report = fleet.go()
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    assert "so it stays" in str(report.hosts[0].reason)
    assert fleet.site("r1").machine.state["module"] == NEW
    fleet.lines["r1"].unproven = False
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]


def test_what_is_unproven_and_was_never_measured_takes_the_driver_back_once_all_are_up(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared((), ("b",)))
    fleet.lines["r1"].unproven = True
    report = fleet.go()
    assert fleet.ends(report) == [End.ROLLED_BACK, End.UNTOUCHED]
    assert "so it stays" not in str(report.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({OLD}, set(UNITS))


def test_whoever_wants_the_driver_before_says_so_and_gets_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(fleet, monkeypatch, UNITS[0])
    report = fleet.go()
    assert "--driver VERSION-BEFORE --anew" in str(report.hosts[0].hint)
    refused = fleet.go(OLD, check=True)
    assert f"take it back: --driver {OLD} --anew" in str(refused.hosts[0].hint)
    broken(fleet, monkeypatch)
    back = fleet.go(OLD, resume=True, anew=True)
    assert fleet.ends(back) == [End.VERIFIED, End.CURRENT]
    site = fleet.site("r1")
    assert (site.versions, site.machine.state["module"], site.up) == ({OLD}, OLD, set(UNITS))
    assert (kept.held(site.tree), site.state.phase) == ((), Phase.DONE)


def test_a_container_without_its_gpus_takes_the_host_back_like_a_failed_all_reduce(fleet: Fleet) -> None:
    machine = fleet.lines["r1"].machine
    real = machine.boot

    def boots() -> None:
        real()
        machine.fault(*(["gpu-unseen"] if machine.state["module"] == NEW else []))

    machine.boot = boots
    report = fleet.go()
    assert fleet.ends(report) == [End.ROLLED_BACK, End.UNTOUCHED]
    assert "expected the container of replica a to see 1 GPUs, found 0 (libcuda)" in str(report.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({OLD}, set(UNITS))


def test_a_freeze_of_the_last_host_is_found_before_anything_is_stopped_on_the_first(fleet: Fleet) -> None:
    fleet.targets[1] = dataclasses.replace(fleet.targets[1], freeze=Freeze(None, "audit week", "the inventory"))
    for check in (True, False):
        report = fleet.go(check=check)
        assert report.exit_code == 2
        assert "freeze: the host is frozen" in str(report.hosts[1].reason)
    assert "prepare" not in fleet.lines["r1"].asked
    assert fleet.site("r1").up == set(UNITS)
    assert fleet.ends(fleet.go(override_freeze="the driver has a hole")) == [End.VERIFIED, End.VERIFIED]


def test_begun_anew_a_record_that_cannot_be_read_stops_nobody_and_is_told(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(fleet, monkeypatch, UNITS[0])
    fleet.go()
    broken(fleet, monkeypatch)
    path = fleet.site("r1").tree.at(orders.FILE)
    path.write_text(path.read_text()[:100])
    refused = fleet.go(resume=True)
    assert "expected nearsocket.reprovision-state/1" in str(refused.hosts[0].reason)
    assert "--anew keeps that file aside" in str(refused.hosts[0].hint)
    report = fleet.go(anew=True)
    assert fleet.ends(report) == [End.VERIFIED, End.VERIFIED]
    assert any("state.json.unreadable-" in note for note in report.hosts[0].notes)
    assert (fleet.site("r1").up, kept.held(fleet.site("r1").tree)) == (set(UNITS), ())
