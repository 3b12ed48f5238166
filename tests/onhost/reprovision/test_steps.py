"""The steps of a driver's upgrade on its host, one after another, and what each leaves."""

from __future__ import annotations

import pytest

from nearsocket.model.driver.orders import Action, Phase
from nearsocket.model.driver.preflight import Grade
from nearsocket.model.snapshot import from_json
from nearsocket.onhost.reprovision import kept
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import KERNEL, NEW, OLD, STANDINS

#: A user's home in the container.
HOME = "/root"
WHOLE = (Action.REHEARSE, Action.PREPARE, Action.UPGRADE, Action.REBOOT, Action.AFTER, Action.START, Action.FINISH)
BACK = (Action.BACK, Action.REBOOT, Action.AFTER, Action.START, Action.FINISH)


def test_a_preflight_reads_and_leaves_everything_as_it_was(site: Site) -> None:
    before = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file() and "fake-system" not in path.name}
    answer = site.good(Action.PREFLIGHT)
    assert [str(look) for look in answer.looks if look.grade is not Grade.OK] == []
    assert (answer.installed, answer.loaded, answer.replicas) == (OLD, OLD, ("a", "b"))
    assert set(answer.words) == {f"{name}={NEW}-0standin1" for name in STANDINS}
    now = {path: path.read_bytes() for path in site.root.rglob("*") if path.is_file() and "fake-system" not in path.name}
    assert now == before
    assert site.up == set(UNITS)


def test_a_rehearsal_fetches_both_ways_while_everything_serves(site: Site) -> None:
    answer = site.good(Action.REHEARSE)
    assert answer.stops == ()
    assert {path.name.partition("_")[0] for path in site.tree.at(kept.NEXT).glob("*.deb")} == set(STANDINS)
    assert {path.name.split("_")[1] for path in site.tree.at(kept.PREVIOUS).glob("*.deb")} == {f"{OLD}-0standin1"}
    assert site.up == set(UNITS)
    assert site.versions == {OLD}


def test_a_whole_upgrade_ends_with_the_new_driver_the_old_holds_and_every_replica_up(site: Site) -> None:
    held = site.held
    site.good(*WHOLE[:3])
    assert site.up == set()
    assert (site.versions, site.held) == ({NEW}, held)
    assert (site.root / f"boot/initrd.img-{KERNEL}").read_text() == "new"
    site.good(Action.REBOOT)
    assert site.up == set(), "no replica starts by the boot while nothing is proven"
    assert site.machine.state["module"] == NEW
    site.good(*WHOLE[4:])
    assert site.up == set(UNITS)
    assert site.state.phase is Phase.DONE
    assert not kept.held(site.tree)
    assert not site.tree.at(kept.NEXT).exists()
    assert from_json(site.tree.at(kept.SNAPSHOT).read_text()).host
    assert site.installs() == 1


def test_replicas_stop_one_by_one_and_start_one_by_one_in_order(site: Site) -> None:
    site.good(*WHOLE)
    stops = [words[2:] for words in site.machine.calls("stop")]
    assert stops == [[UNITS[0]], [UNITS[1]]]
    starts = [words[2:] for words in site.machine.calls("start") if set(words[2:]) & set(UNITS)]
    assert starts[-2:] == [[UNITS[0]], [UNITS[1]]]


def test_only_what_was_held_is_held_again(site: Site) -> None:
    site.machine._set(STANDINS[0], held=False)
    site.good(*WHOLE[:3])
    assert site.held == set(STANDINS[1:])


def test_a_replica_that_did_not_run_before_is_left_down(site: Site) -> None:
    site.machine(["systemctl", "stop", UNITS[1]], 1)
    site.good(*WHOLE)
    assert site.up == {UNITS[0]}


def test_no_replica_starts_before_the_driver_is_proven(site: Site) -> None:
    site.good(*WHOLE[:3])
    answer = site.do(Action.START, replica="a")
    assert answer.error == "expected the driver to be proven before a replica starts, found upgraded"
    assert site.up == set()


def test_a_start_without_a_proof_is_an_error_unless_unknown_is_accepted(site: Site) -> None:
    site.good(*WHOLE[:5])
    answer = site.do(Action.START, replica="a", accept_unknown=False)
    assert answer.error is not None
    assert "left no proof" in answer.error


def test_each_step_done_twice_is_done_once(site: Site) -> None:
    for action in WHOLE[1:6]:
        site.good(action)
        if action is not Action.START:
            site.good(action)
    assert site.installs() == 1
    assert len([words for words in site.machine.state["calls"] if "reboot" in words]) == 1
    assert len(site.machine.calls("stop")) == 2


def test_the_way_back_ends_with_the_driver_before_its_holds_and_every_replica_up(site: Site) -> None:
    held = site.held
    site.good(*WHOLE[:5])
    site.good(*BACK)
    assert (site.versions, site.held, site.machine.state["module"]) == ({OLD}, held, OLD)
    assert site.up == set(UNITS)
    assert site.state.phase is Phase.DONE


def test_back_from_packages_that_were_never_booted_needs_no_reboot(site: Site) -> None:
    site.good(*WHOLE[:3])
    site.good(Action.BACK)
    assert site.do(Action.REBOOT).notes == ("no reboot is needed",)
    assert not site.machine.state["rebooting"]
    site.good(*BACK[2:])
    assert (site.versions, site.up) == ({OLD}, set(UNITS))


def test_the_way_back_works_where_no_repository_has_the_old_packages_any_more(site: Site) -> None:
    site.good(*WHOLE[:5])
    site.machine.change(repo={name: [f"{NEW}-0standin1"] for name in STANDINS})
    site.good(*BACK)
    assert site.versions == {OLD}


def test_no_way_back_is_said_before_anything_is_stopped_and_again_where_it_is_tried(site: Site) -> None:
    site.machine.change(repo={name: [f"{NEW}-0standin1"] for name in STANDINS})
    answer = site.good(Action.REHEARSE)
    assert [look.text[:11] for look in answer.looks if look.grade is Grade.WARN] == ["no way back"]
    site.good(*WHOLE[1:3])
    back = site.do(Action.BACK)
    assert back.error is not None
    assert "was not found" in back.error
    assert site.versions == {NEW}


def test_packages_that_are_at_the_version_already_need_the_reboot_and_the_proofs_alone(site: Site) -> None:
    """The mismatch window that unattended upgrades leave."""
    for name in STANDINS:
        site.machine._set(name, version=f"{NEW}-0standin1", held=False)
    site.machine.change(modules={KERNEL: NEW})
    answer = site.good(Action.PREFLIGHT)
    assert (answer.installed, answer.loaded, answer.words) == (NEW, OLD, ())
    site.good(*WHOLE)
    assert site.installs() == 0
    assert (site.machine.state["module"], site.up) == (NEW, set(UNITS))
    assert site.held == set()


def test_what_engines_compiled_is_cleared_in_mounted_folders_and_no_link_is_followed(site: Site) -> None:
    cache = site.root / "srv/cache"
    (cache / "vllm/torch_compile_cache/deep").mkdir(parents=True)
    (cache / "vllm/torch_compile_cache/deep/x").write_text("x")
    (cache / "model").write_text("weights")
    elsewhere = site.root / "srv/elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("p")
    (cache / "flashinfer").symlink_to(elsewhere)
    mounts = [
        {"source": "/srv/cache", "destination": f"{HOME}/.cache", "type": "bind"},
        {"source": "/srv/models", "destination": "/models", "type": "bind"},
    ]
    site.machine.change(boxes=[{"name": "nearsocket-x-a", "mounts": mounts, "read_only": ["/models"]}])
    site.good(*WHOLE[1:5])
    assert list((cache / "vllm/torch_compile_cache").iterdir()) == []
    assert (elsewhere / "precious").exists()
    assert (cache / "model").exists()


def test_a_named_volume_among_the_mounts_is_cleared_below_its_root_and_never_at_it(site: Site) -> None:
    volumes = site.root / "var/lib/docker/volumes"
    inductor, whole, other = (volumes / name / "_data" for name in ("inductor", "cache", "other"))
    for folder in (inductor / "fxgraph", whole / "vllm/torch_aot_compile/aa", other / "cache/ab"):
        folder.mkdir(parents=True)
        (folder / "x").write_text("x")
    mounts = [
        # The volume is a cache's root itself, as `docker volume` made it: whoever mounted it may keep more in it.
        {"source": "/var/lib/docker/volumes/inductor/_data", "destination": "/inductor", "type": "volume"},
        {"source": "/var/lib/docker/volumes/cache/_data", "destination": f"{HOME}/.cache", "type": "volume"},
        {"source": "/var/lib/docker/volumes/other/_data", "destination": f"{HOME}/.triton", "type": "volume"},
        {"source": "", "destination": "/tmp", "type": "tmpfs"},
    ]
    env = site.tree.current / "env/a.env"
    env.write_text(f"{env.read_text()}TORCHINDUCTOR_CACHE_DIR=/inductor\n")
    box = {"name": "nearsocket-x-a", "mounts": mounts, "read_only": [f"{HOME}/.triton"]}
    site.machine.change(boxes=[box])
    notes = site.good(*WHOLE[1:5]).notes
    assert site.state.caches[0].startswith("/var/lib/docker/volumes/cache/_data/vllm/")
    assert not any(path.startswith("/var/lib/docker/volumes/inductor") for path in site.state.caches)
    assert (inductor / "fxgraph/x").exists(), "a mount's own root"
    assert list((whole / "vllm/torch_aot_compile").iterdir()) == []
    assert (other / "cache/ab/x").exists(), "the container may only read it"
    assert "cleared what was compiled in /var/lib/docker/volumes/cache/_data/vllm/torch_aot_compile" in notes


def test_what_running_replicas_compiled_behind_the_new_driver_is_not_cleared_by_whoever_goes_on(site: Site) -> None:
    mounts = [{"source": "/srv/cache", "destination": f"{HOME}/.cache", "type": "bind"}]
    site.machine.change(boxes=[{"name": "nearsocket-x-a", "mounts": mounts, "read_only": []}])
    site.good(*WHOLE[1:6])
    compiled = site.root / "srv/cache/vllm/torch_compile_cache/x"
    compiled.mkdir(parents=True)
    site.good(Action.AFTER)
    assert compiled.exists()


@pytest.mark.parametrize("ctk", [True, False])
def test_a_cdi_specification_of_the_old_version_is_made_anew_or_said(site: Site, ctk: bool) -> None:
    site.good(*WHOLE[1:3])
    text = f'{{"kind": "nvidia.com/gpu", "hostPath": "/usr/lib/libcuda.so.{OLD}"}}'
    (site.root / "etc/cdi/nvidia.json").write_text(text)
    (site.root / "usr/lib").mkdir(parents=True)
    (site.root / f"usr/lib/libcuda.so.{NEW}").write_text("")
    site.machine.change(cdi={"/etc/cdi/nvidia.json": text}, faults=[] if ctk else ["no-ctk"])
    site.good(Action.REBOOT)
    answer = site.do(Action.AFTER)
    if ctk:
        copy = "/var/lib/nearsocket/reprovision/etc-cdi-nvidia.json"
        assert answer.notes[0] == f"/etc/cdi/nvidia.json was made anew; as it was: {copy}"
        assert site.tree.at(copy).read_text() == text
    else:
        assert answer.error is not None
        assert "no nvidia-ctk" in answer.error


def test_a_module_of_another_version_after_the_boot_is_no_proof(site: Site) -> None:
    site.good(*WHOLE[1:3])
    site.do(Action.REBOOT)
    site.machine.change(modules={KERNEL: OLD})
    site.machine.boot()
    answer = site.do(Action.AFTER)
    assert answer.error == f"expected the driver {NEW} everywhere, found: the module in memory is {OLD}"
    assert kept.held(site.tree)


def test_another_rollouts_upgrade_is_not_gone_on_with(site: Site) -> None:
    site.good(*WHOLE[1:3])
    answer = site.do(Action.AFTER, id="other")
    assert answer.error is not None
    assert "expected upgrade other, found job-1" in answer.error


def test_a_module_that_no_one_has_used_in_this_boot_is_loaded_first(site: Site) -> None:
    site.good(*WHOLE[1:4])
    (site.root / "sys/module/nvidia/version").unlink()
    site.machine.change(module=None)
    site.good(Action.AFTER)
    assert site.machine.state["module"] == NEW
