"""What an upgrade's steps judge again before they change anything, and what they leave where there is no way back."""

from __future__ import annotations

import pytest

from nearsocket.model.driver.orders import Action, Phase
from nearsocket.model.driver.preflight import Grade
from nearsocket.onhost.reprovision import kept
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import KERNEL, NEW, OLD, STANDINS
from tests.onhost.reprovision.test_steps import BACK, WHOLE


def silently_upgraded(site: Site) -> None:
    for name in STANDINS:
        site.machine._set(name, version=f"{NEW}-0standin1")
    site.machine.change(modules={KERNEL: NEW})


def test_without_a_way_back_the_host_is_not_put_on_it_and_goes_on_forward(site: Site) -> None:
    silently_upgraded(site)
    site.good(*WHOLE[1:5])
    said = site.do(Action.BACK)
    assert said.error == f"expected the packages of {OLD} to go back to, found that the upgrade was not made here"
    assert (site.state.back, site.state.phase) == (False, Phase.PROVEN)
    site.good(*WHOLE[1:])
    assert (site.state.phase, site.up) == (Phase.DONE, set(UNITS))


def test_a_way_back_that_apt_refuses_is_not_begun(site: Site) -> None:
    site.good(*WHOLE[:5])
    site.machine.fault("brake")
    before = site.installs()
    said = site.do(Action.BACK)
    assert said.error == f"expected a way back to {OLD}, found: brake would be removed"
    assert (site.state.back, site.installs()) == (False, before)


def test_a_host_on_its_way_back_is_turned_round_where_that_is_asked(site: Site) -> None:
    site.good(*WHOLE[:5])
    site.good(Action.BACK)
    assert site.versions == {OLD}
    site.good(Action.PREPARE)
    assert site.state.back, "going on alone turns nothing round"
    answer = site.good(Action.PREPARE, forward=True)
    assert answer.notes == ("it was on its way back: turned round, as you asked",)
    site.good(*WHOLE[2:])
    assert (site.versions, site.up, site.state.phase) == ({NEW}, set(UNITS), Phase.DONE)


def test_what_the_rehearsal_refused_is_refused_again_before_the_install(site: Site) -> None:
    site.good(*WHOLE[:2])
    site.machine.fault("brake")
    said = site.do(Action.UPGRADE)
    assert said.error == "expected apt to change the driver's packages alone, found: brake would be removed"
    assert (site.installs(), site.versions) == (0, {OLD})


def test_the_words_that_were_looked_at_are_installed_though_another_build_was_offered_since(site: Site) -> None:
    words = site.good(*WHOLE[:2]).state
    assert words is not None
    repo = site.machine.state["repo"]
    site.machine.change(repo={name: [f"{NEW}-9other1", *versions] for name, versions in repo.items()})
    site.good(Action.UPGRADE)
    assert {package["version"] for package in site.machine.state["packages"].values()} == {f"{NEW}-0standin1"}
    assert set(words.words) == {f"{name}={NEW}-0standin1" for name in STANDINS}


def test_packages_that_are_not_the_module_that_serves_stop_the_upgrade(site: Site) -> None:
    site.machine.change(module="580.90.01")
    stops = [str(look) for look in site.do(Action.PREFLIGHT).stops]
    assert stops[0].startswith(f"packages: the module in memory is 580.90.01, the packages are {OLD}")


def test_a_hold_of_a_package_that_is_no_core_one_outlives_a_transaction_that_broke_half_way(site: Site) -> None:
    extra = "libnvidia-gl-standin"
    site.machine._set(extra, version=f"{OLD}-0standin1", held=True, half=False)
    repo = site.machine.state["repo"]
    site.machine.change(repo={**repo, extra: [f"{NEW}-0standin1", f"{OLD}-0standin1"]})
    held = site.held
    site.good(*WHOLE[:2])
    site.machine.fault("usr-full")
    assert site.do(Action.UPGRADE).error is not None
    assert site.held == held
    site.machine.fault()
    site.good(Action.UPGRADE)
    assert (site.held, site.versions) == (held, {NEW})


def test_a_way_back_from_a_transaction_that_broke_half_way_is_found(site: Site) -> None:
    site.good(*WHOLE[:2])
    site.machine.fault("usr-full")
    assert site.do(Action.UPGRADE).error is not None
    site.machine.fault()
    site.good(*BACK)
    assert (site.versions, site.up) == ({OLD}, set(UNITS))


def test_packages_of_an_earlier_rehearsal_are_not_what_is_built(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.by_dkms(monkeypatch)
    old = kept.folder(site.tree, kept.NEXT) / "nvidia-dkms-standin_580.99.01-0standin1_amd64.deb"
    old.write_text("an earlier one")
    answer = site.good(Action.REHEARSE)
    assert [look.text for look in answer.looks if look.check == "trial build"] == [f"the module of {NEW} builds for {KERNEL}"]
    assert not old.exists()


def kept_packages(site: Site) -> set[str]:
    return {path.name for path in site.tree.at(kept.PREVIOUS).glob("*.deb")}


def test_packages_that_the_repository_no_longer_has_are_kept_from_apts_cache_and_gone_back_to(site: Site) -> None:
    site.machine.change(repo={name: [f"{NEW}-0standin1"] for name in STANDINS})
    cache = site.tree.at("/var/cache/apt/archives")
    cache.mkdir(parents=True)
    for name in STANDINS:
        (cache / f"{name}_{OLD}-0standin1_amd64.deb").write_text("whole")
    looks = site.good(Action.REHEARSE).looks
    assert [look.grade for look in looks if look.check == "way back"] == [Grade.OK]
    for path in cache.glob("*.deb"):
        path.unlink()
    site.good(*WHOLE[1:5])
    site.good(*BACK)
    assert (site.versions, site.machine.state["module"], site.up) == ({OLD}, OLD, set(UNITS))


def test_a_repository_that_goes_on_behind_the_rehearsal_takes_no_way_back_away(site: Site) -> None:
    site.good(*WHOLE[:2])
    site.machine.change(repo={name: [f"{NEW}-0standin1"] for name in STANDINS})
    site.good(*WHOLE[2:5])
    site.good(*BACK)
    assert (site.versions, site.up, site.state.phase) == ({OLD}, set(UNITS), Phase.DONE)


def test_a_second_rehearsal_keeps_what_the_first_one_kept_though_nobody_offers_it_any_more(site: Site) -> None:
    site.good(Action.REHEARSE)
    before = kept_packages(site)
    assert before == {f"{name}_{OLD}-0standin1_amd64.deb" for name in STANDINS}
    site.machine.change(repo={name: [f"{NEW}-0standin1"] for name in STANDINS})
    looks = site.good(Action.REHEARSE).looks
    assert [look.grade for look in looks if look.check == "way back"] == [Grade.OK]
    assert kept_packages(site) == before


def test_half_an_archive_is_no_way_back_and_is_fetched_anew(site: Site) -> None:
    folder = kept.folder(site.tree, kept.PREVIOUS)
    for name in STANDINS:
        (folder / f"{name}_{OLD}-0standin1_amd64.deb").write_text("")
    site.good(Action.REHEARSE)
    assert all(path.stat().st_size for path in folder.glob("*.deb"))
    for path in folder.glob("*.deb"):
        path.write_text("")
    site.machine.change(repo={name: [f"{NEW}-0standin1"] for name in STANDINS})
    looks = site.good(Action.REHEARSE).looks
    assert [look.text[:11] for look in looks if look.grade is Grade.WARN] == ["no way back"]


def test_status_tells_packages_of_two_versions_and_which_replicas_ran(site: Site) -> None:
    site.machine(["systemctl", "stop", UNITS[1]], 1)
    assert site.good(Action.STATUS).ran is None
    site.good(*WHOLE[:2])
    assert site.good(Action.STATUS).ran == ("a",)
    site.machine._set(STANDINS[0], version=f"{NEW}-0standin1")
    answer = site.good(Action.STATUS)
    assert (answer.installed, len(answer.split)) == (None, 3)
