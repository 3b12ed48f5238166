"""What goes wrong with an upgrade on its host: found before anything is stopped, told in one line, mended by going on or back."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.model import freeze
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Action, Order, Phase
from nearsocket.model.errors import NearsocketError
from nearsocket.onhost.apply import lock
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.reprovision import entry, kept
from tests.onhost.apply.made import Host as Installation
from tests.onhost.apply.made import generation
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import DKMS, KERNEL, NEW, OLD, STANDINS, Machine
from tests.onhost.reprovision.test_steps import BACK, WHOLE


def stops(site: Site, action: Action = Action.REHEARSE) -> list[str]:
    answer = site.do(action)
    return [str(look) for look in answer.stops]


#: A fault of the machine, and what the preflight or the rehearsal says.
FOUND = {
    "brake": "transaction: brake would be removed",
    "broken": "transaction: E: Unable to correct problems, you have held broken packages.",
    "var-full": "fetch: E: Write error - write (28: No space left on device)",
}


@pytest.mark.parametrize("fault", FOUND)
def test_what_the_transaction_would_run_into_stops_it_before_anything_is_stopped(site: Site, fault: str) -> None:
    site.machine.fault(fault)
    said = stops(site)
    assert len(said) == 1
    assert said[0].startswith(FOUND[fault])
    assert (site.up, site.versions) == (set(UNITS), {OLD})


def test_a_prepare_whose_preflight_finds_something_stops_nothing(site: Site) -> None:
    site.machine.fault("brake")
    answer = site.do(Action.PREPARE)
    assert answer.error is not None
    assert "brake would be removed" in answer.error
    assert not answer.touched
    assert (site.up, kept.held(site.tree)) == (set(UNITS), ())


def test_a_foreign_hold_is_named(site: Site) -> None:
    site.machine.fault("brake")
    site.machine._set("brake", version="1.0", held=True)
    assert stops(site)[0].startswith("transaction: brake is held, and the transaction changes it")


def test_a_version_that_nobody_offers_is_named(site: Site) -> None:
    site.machine.change(repo={name: [f"{OLD}-0standin1"] for name in STANDINS})
    assert stops(site)[0].startswith(f"packages: no repository offers {NEW} of libnvidia-compute-standin")


def test_half_installed_packages_stop_it(site: Site) -> None:
    site.machine._set(STANDINS[0], half=True)
    assert stops(site)[0].startswith("packages: half installed: libnvidia-compute-standin")


def test_sources_that_are_in_a_package_of_their_own_are_tried_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ubuntu's: nvidia-kernel-source-* has them, nvidia-dkms-* has none."""
    site.by_dkms(monkeypatch)
    now = site.machine.state
    for known in (now["packages"], now["repo"]):
        known["nvidia-kernel-source-standin"] = known.pop("nvidia-utils-standin")
    site.machine.change(packages=now["packages"], repo=now["repo"])
    real = Machine._dpkg_deb
    monkeypatch.setattr(
        Machine,
        "_dpkg_deb",
        lambda machine, words, folder: (
            Output(0, "", "") if words[0] == "-x" and "kernel-source" not in words[1] else real(machine, words, folder)
        ),
    )
    site.machine.fault("dkms-fails")
    assert stops(site)[0].startswith(f"trial build: the module of {NEW} does not build")


def test_a_module_that_does_not_build_is_found_by_the_trial_and_told_by_the_compilers_line(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.by_dkms(monkeypatch)
    assert stops(site) == []
    site.machine.fault("dkms-fails")
    said = stops(site)
    assert len(said) == 1
    assert said[0].startswith(f"trial build: the module of {NEW} does not build for kernel {KERNEL}: nvidia.c:12:5: error")
    assert site.up == set(UNITS)
    assert not site.tree.at(kept.TRIAL).exists() or list(site.tree.at(kept.TRIAL).iterdir()) == []


def test_a_full_boot_partition_is_found_before(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from nearsocket.onhost.reprovision import facts

    monkeypatch.setattr(facts, "free", lambda _tree: {"/var": 1 << 40, "/usr": 1 << 40, "/boot": 1})
    monkeypatch.setattr(facts, "devices", lambda _tree: {})
    monkeypatch.setattr(facts, "initrd_bytes", lambda _tree: 80 << 20)
    assert stops(site)[0].startswith("disk: /boot: 0 MiB free, 91 MiB needed")


def test_a_wrong_fabric_manager_is_found_before(site: Site) -> None:
    site.machine.change(fabricmanager={"unit": "active", "version": "570.1.2", "nvswitches": 4})
    assert stops(site)[0].startswith("fabric manager: 4 NVSwitches, and no package of fabric manager is installed")


def test_units_that_would_start_by_themselves_at_the_boot_are_found_before(site: Site) -> None:
    path = site.tree.current / "systemd" / UNITS[0]
    path.write_text(path.read_text().replace("hold-starts", "nothing"))
    assert "would start by itself at the boot, unproven" in stops(site)[0]


def test_a_distribution_without_dpkg_is_not_supported_and_told_so(site: Site) -> None:
    (site.root / "var/lib/dpkg/status").unlink()
    said = stops(site)
    assert len(said) == 1
    assert said[0].startswith("system: not supported here: packages of dpkg alone (Debian, Ubuntu) are upgraded (upgrade by hand")


def test_a_frozen_host_is_not_begun(site: Site) -> None:
    (site.root / freeze.FILE.lstrip("/")).write_text("reason: audit week\n")
    answer = site.do(Action.PREPARE)
    assert answer.error is not None
    assert "audit week" in answer.error
    assert site.up == set(UNITS)


def test_a_lock_of_another_package_manager_fails_the_step_and_keeps_the_holds(site: Site) -> None:
    held = site.held
    site.good(Action.PREPARE)
    site.machine.fault("lock")
    answer = site.do(Action.UPGRADE)
    assert answer.error is not None
    assert "Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4242 (unattended-upgr)" in answer.error
    assert (site.held, site.versions, answer.touched) == (held, {OLD}, True)
    site.machine.fault()
    site.good(*WHOLE[2:])
    assert (site.versions, site.held) == ({NEW}, held)


def test_a_transaction_that_breaks_in_the_middle_keeps_the_holds_and_goes_back_whole(site: Site) -> None:
    held = site.held
    site.good(Action.REHEARSE, Action.PREPARE)
    site.machine.fault("usr-full")
    answer = site.do(Action.UPGRADE)
    assert answer.error is not None
    assert "No space left on device" in answer.error
    assert (len(site.versions), site.held) == (2, held)
    site.machine.fault()
    site.good(*BACK)
    assert (site.versions, site.held, site.up) == ({OLD}, held, set(UNITS))


def test_a_transaction_that_broke_in_the_middle_can_be_gone_on_with(site: Site) -> None:
    held = site.held
    site.good(Action.PREPARE)
    site.machine.fault("usr-full")
    assert site.do(Action.UPGRADE).error is not None
    site.machine.fault()
    site.good(*WHOLE[2:])
    assert (site.versions, site.held, site.up) == ({NEW}, held, set(UNITS))


def test_dkms_that_fails_in_the_transaction_is_told_and_gone_back_from(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.by_dkms(monkeypatch)
    held = site.held
    site.good(Action.REHEARSE, Action.PREPARE)
    site.machine.fault("dkms-fails")
    answer = site.do(Action.UPGRADE)
    assert answer.error is not None
    assert "Error! Bad return status for module build on kernel" in answer.error
    assert site.held >= held - {DKMS}
    site.machine.fault()
    site.good(*BACK)
    assert (site.versions, site.held) == ({OLD}, held)


def test_a_next_kernel_without_the_module_is_found_before_the_reboot(site: Site) -> None:
    site.machine.change(modules={KERNEL: OLD, "6.1.0-31-amd64": OLD}, next_kernel="6.1.0-31-amd64")
    site.good(Action.PREPARE)
    site.machine.fault("no-module")
    answer = site.do(Action.UPGRADE)
    assert answer.error == f"expected kernel 6.1.0-31-amd64 to have the module {NEW}, found {OLD}"
    assert not site.machine.state["rebooting"]


def test_a_ram_disk_that_cannot_be_written_is_found_before_the_reboot(site: Site) -> None:
    site.good(Action.PREPARE)
    site.machine.fault("boot-full")
    answer = site.do(Action.UPGRADE)
    assert answer.error is not None
    assert "expected update-initramfs to make" in answer.error
    assert "No space left on device" in answer.error


#: Calls at which the program dies, the step that makes them, and how the phase reads afterwards.
KILLS = [
    ("apt-get -q -y", Action.REHEARSE, None),
    (f"stop -- {UNITS[0]}", Action.PREPARE, Phase.STOPPING),
    (f"stop -- {UNITS[1]}", Action.PREPARE, Phase.STOPPING),
    ("dpkg --force-confdef", Action.UPGRADE, Phase.UPGRADING),
    ("apt-mark unhold", Action.UPGRADE, Phase.UPGRADING),
    ("--allow-downgrades install", Action.UPGRADE, Phase.UPGRADING),
    ("apt-mark hold", Action.UPGRADE, Phase.UPGRADING),
    ("modinfo", Action.UPGRADE, Phase.UPGRADING),
    ("update-initramfs", Action.UPGRADE, Phase.UPGRADING),
    ("--no-block reboot", Action.REBOOT, Phase.REBOOTING),
]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(("text", "action", "phase"), KILLS, ids=[text for text, *_ in KILLS])
def test_a_program_that_dies_anywhere_is_gone_on_with_to_the_same_end(
    site: Site, text: str, action: Action, phase: Phase | None, before: bool
) -> None:
    held = site.held
    for step in WHOLE[: WHOLE.index(action)]:
        site.good(step)
    site.killed_at(text, action, before)
    if phase is not None:
        assert site.state.phase is phase
        assert kept.held(site.tree) or phase is Phase.STOPPING
    if site.machine.state["rebooting"]:
        site.machine.boot()
    site.good(*WHOLE[WHOLE.index(action) :])
    assert (site.versions, site.held, site.machine.state["module"]) == ({NEW}, held, NEW)
    assert (site.up, site.state.phase) == (set(UNITS), Phase.DONE)


@pytest.mark.parametrize("text", ["apt-mark unhold", "--allow-downgrades install", "apt-mark hold", "modinfo"])
def test_a_way_back_that_dies_anywhere_is_gone_on_with_to_its_end(site: Site, text: str) -> None:
    held = site.held
    site.good(*WHOLE[:5])
    site.killed_at(text, Action.BACK)
    site.good(*BACK)
    assert (site.versions, site.held, site.machine.state["module"], site.up) == ({OLD}, held, OLD, set(UNITS))


def test_a_power_cut_between_upgrade_and_proof_starts_no_replica(site: Site) -> None:
    site.good(*WHOLE[:3])
    site.machine.change(rebooting=True)
    site.machine.boot()
    assert site.up == set()
    site.good(*WHOLE[3:])
    assert site.up == set(UNITS)


def test_another_apply_at_work_is_waited_for_no_longer_than_asked_and_named(site: Site) -> None:
    with lock.exclusive(site.tree, "nearsocket apply by somebody", 0):
        answer = site.do(Action.PREPARE)
    assert answer.error is not None
    assert "nearsocket apply by somebody" in answer.error
    assert site.up == set(UNITS)


@pytest.mark.parametrize("to", ["latest", "580.1; reboot", "--help"])
def test_what_is_no_version_never_reaches_a_command(tmp_path: Path, to: str) -> None:
    order = Order(Action.PREFLIGHT, "job", "ops", to)
    with pytest.raises(NearsocketError, match="expected a driver's version"):
        entry.run(order.to_json().encode(), str(tmp_path))


def test_orders_states_and_answers_come_back_as_they_were_written(site: Site) -> None:
    site.good(Action.PREPARE)
    state, answer = site.state, site.do(Action.PREFLIGHT)
    order = Order(Action.START, "job", "ops", NEW, replica="a", freeze=freeze.Freeze(None, "no", "me"))
    assert orders.state_from_json(state.to_json()) == state
    assert orders.answer_from_json(answer.to_json()) == answer
    assert orders.order_from_json(order.to_json()) == order
    for text in ("", "{}", "[]", '{"schema": "nearsocket.reprovision-state/1"}', "null"):
        for read in (orders.state_from_json, orders.answer_from_json, orders.order_from_json):
            with pytest.raises(NearsocketError):
                read(text)


def test_an_apply_keeps_away_until_the_driver_is_proven_and_leaving_the_host_does_not(site: Site) -> None:
    site.good(*WHOLE[:3])
    installation = Installation(site.root)
    installation.system = site.machine
    outcome = installation.apply(generation({"a": "other"}), allow_removals=True)
    assert outcome.error is not None
    assert "a driver upgrade to 580.105.08 is under way, begun by ops" in outcome.error
    assert not outcome.wrote
    assert installation.apply(None, remove=True).error is None
    assert not (site.root / "var/lib/nearsocket").exists(), "the marker and the journal go with all else"
