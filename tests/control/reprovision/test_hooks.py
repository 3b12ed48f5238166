"""A load balancer that does not answer says nothing of a driver: what hooks come to in an upgrade."""

from __future__ import annotations

import pytest

from nearsocket.control.reprovision import measuring
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.model.driver.orders import Phase
from nearsocket.model.rollout.report import End
from nearsocket.onhost.reprovision import kept
from tests.control.reprovision.fleet import Fleet
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import NEW, OLD


def hooks(site: Site, program: str | None) -> None:
    """From now on the start of a calls this undrain hook; None: it has none."""
    words = ["--replica", "a", "--hook", "undrain", "--timeout", "5", "--", program or ""]
    site.machine.change(hooks={UNITS[0]: words} if program else {})


def test_an_undrain_hook_that_fails_fails_the_host_and_takes_no_driver_back_measured_or_not(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared(("replica a: no all-reduce was measured",), ("b",)))
    site = fleet.site("r1")
    hooks(site, "false")
    report = fleet.go()
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    said = str(report.hosts[0].reason)
    assert said.startswith("replica a: its undrain hook failed: exit code 1; whether it gets traffic is not known; ")
    assert f"every replica is up behind the driver {NEW}, so it stays" in said
    assert "back" not in fleet.lines["r1"].asked
    assert (site.versions, site.up, kept.held(site.tree)) == ({NEW}, set(UNITS), ())
    assert site.state.phase is Phase.PROVEN, "not closed: --resume gives the hook another call"
    ran = {unit: site.machine.state["active"][unit]["id"] for unit in UNITS}
    hooks(site, "true")
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]
    assert site.state.phase is Phase.DONE
    assert [site.machine.state["active"][unit]["id"] == ran[unit] for unit in UNITS] == [False, True], "one gets another start"


def test_on_the_way_back_a_hook_that_fails_is_a_note_and_the_host_is_back(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.lines["r1"].unproven = True
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared())
    site = fleet.site("r1")
    machine, boot = site.machine, site.machine.boot

    def boots() -> None:
        if machine.state["modules"] and OLD in machine.state["modules"].values():
            hooks(site, "false")
        boot()

    monkeypatch.setattr(machine, "boot", boots)
    report = fleet.go()
    assert fleet.ends(report) == [End.ROLLED_BACK, End.UNTOUCHED]
    assert any(note.startswith("replica a: its undrain hook failed: exit code 1") for note in report.hosts[0].notes)
    assert (site.versions, site.up, kept.held(site.tree), site.state.phase) == ({OLD}, set(UNITS), (), Phase.DONE)
