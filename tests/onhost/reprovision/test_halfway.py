"""A transaction that breaks half-way: both directions stay open, nothing half done passes, and holds are there again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from nearsocket.model.driver import family
from nearsocket.model.driver.orders import Action, Order, Phase
from nearsocket.model.errors import NearsocketError
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import CommandTimeout, Output
from nearsocket.onhost.reprovision import steps
from nearsocket.onhost.reprovision.apt import Apt
from nearsocket.onhost.reprovision.work import Work
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import NEW, OLD, STANDINS, Machine


def test_a_module_that_never_builds_has_a_way_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.by_dkms(monkeypatch)
    site.good(Action.REHEARSE, Action.PREPARE)
    site.machine.fault("dkms-fails")  # and it stays so: the newer module's sources are not for this kernel
    answer = site.do(Action.UPGRADE)
    assert answer.error is not None
    assert "Bad return status for module build" in answer.error
    site.good(Action.BACK, Action.REBOOT, Action.AFTER, Action.START)
    assert (site.versions, site.up) == ({OLD}, set(UNITS))


def test_what_was_unpacked_and_waits_for_the_rest_is_brought_back(site: Site) -> None:
    """dpkg configures nothing there, and apt says `Unmet dependencies` to words that do not close them (test_real_apt.py)."""
    site.good(Action.REHEARSE, Action.PREPARE)
    site.machine.fault("usr-full")
    assert "No space left on device" in str(site.do(Action.UPGRADE).error)
    assert site.versions == {OLD, NEW}
    site.machine.fault()
    site.good(Action.BACK, Action.REBOOT, Action.AFTER, Action.START)
    assert (site.versions, site.up) == ({OLD}, set(UNITS))


def test_what_was_unpacked_and_waits_for_the_rest_is_gone_on_with(site: Site) -> None:
    site.good(Action.REHEARSE, Action.PREPARE)
    site.machine.fault("usr-full")
    site.do(Action.UPGRADE)
    site.machine.fault()
    site.good(Action.PREPARE, Action.UPGRADE, Action.REBOOT, Action.AFTER, Action.START)
    assert (site.versions, site.up) == ({NEW}, set(UNITS))


def test_a_package_that_stays_half_configured_is_no_upgrade(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """All versions are the new one, and one package's script failed for good: the transaction says so, not a boot later."""
    site.good(Action.REHEARSE, Action.PREPARE)
    site.killed_at("apt-mark hold", Action.UPGRADE)
    assert site.versions == {NEW}
    site.machine._set(STANDINS[2], half=True)
    said = Output(1, "dpkg: error processing package nvidia-utils-standin (--configure):\n", "")
    monkeypatch.setattr(Machine, "_dpkg", lambda *_: said)
    monkeypatch.setattr(Machine, "_installed", lambda *_: said)
    answer = site.do(Action.UPGRADE)
    assert answer.error is not None
    assert site.state.phase is Phase.UPGRADING


@pytest.mark.parametrize("action", [Action.UPGRADE, Action.BACK])
def test_packages_are_held_again_where_letting_them_go_failed(site: Site, monkeypatch: pytest.MonkeyPatch, action: Action) -> None:
    before = site.held
    assert before
    site.good(Action.REHEARSE, Action.PREPARE)
    if action is Action.BACK:
        site.good(Action.UPGRADE)
    real = Machine._apt_mark
    failed: list[list[str]] = []

    def mark(machine: Machine, words: list[str], folder: str | None) -> Output:
        said = real(machine, words, folder)
        if words[0] == "unhold" and not failed:
            failed.append(words)
            raise CommandTimeout("apt-mark unhold: no answer in 300 s")
        return said

    monkeypatch.setattr(Machine, "_apt_mark", mark)
    answer = site.do(action)
    assert answer.error == "apt-mark unhold: no answer in 300 s"
    assert site.held == before


BRANCHES = ("570.86.15-0ubuntu1", "580.105.08-0ubuntu1")
PARTS = ("nvidia-driver", "nvidia-utils", "libnvidia-compute", "libnvidia-gl", "libnvidia-decode")
#: It broke behind two of five: 570's of these are gone.
HALF_A_BRANCH = "".join(
    [f"{part}-570\t{BRANCHES[0]}\tii \n" for part in PARTS if part not in ("libnvidia-compute", "libnvidia-gl")]
    + [f"{part}-580\t{BRANCHES[1]}\tiU \n" for part in ("libnvidia-compute", "libnvidia-gl")]
)
AWAY = "".join(
    [f"Remv {part}-580 [{BRANCHES[1]}]\n" for part in ("libnvidia-compute", "libnvidia-gl")]
    + [f"Inst {part}-570 ({BRANCHES[0]} x [amd64])\n" for part in ("libnvidia-compute", "libnvidia-gl")]
)


@pytest.mark.parametrize(("more", "refused"), [("", False), ("Remv python3 [3.13.5-1]\n", True)])
def test_a_change_of_branch_that_broke_half_way_has_a_way_back(site: Site, more: str, refused: bool) -> None:
    """What the transaction brought goes again, under the names of its own branch; nothing else does."""

    def run(argv: Sequence[str], _limit_s: float) -> Output:
        said = {"dpkg-query": HALF_A_BRANCH, "showhold": "", "-s": AWAY + more}
        return Output(0, next(text for word, text in said.items() if word in argv), "")

    site.good(Action.PREPARE)
    state = dataclasses.replace(
        site.state,
        frm="570.86.15",
        packages={f"{part}-570": BRANCHES[0] for part in PARTS},
        words=tuple(f"{part}-580={BRANCHES[1]}" for part in PARTS),
    )
    apt = Apt("/nowhere", run)
    work = Work(Order(Action.BACK, state.id, "ops", NEW), site.tree, apt, Systemctl(site.machine), state)
    if refused:
        with pytest.raises(NearsocketError, match=r"expected a way back to 570.86.15, found: python3 would be removed"):
            steps._way_back(work, state, family.of(apt.installed()))
    else:
        words = steps._way_back(work, state, family.of(apt.installed()))
        back = tuple(sorted(f"{part}-570={BRANCHES[0]}" for part in PARTS))
        assert words == (*back, "libnvidia-compute-580-", "libnvidia-gl-580-"), "apt is told what goes: the real one asks for that"
