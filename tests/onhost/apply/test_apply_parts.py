"""The rest of an apply's work: replicas that go, generations that come back, kernel settings, images, parts, surveys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nearsocket.model.generation import Generation
from nearsocket.model.order import Part
from nearsocket.model.outcome import Kind
from nearsocket.onhost.apply.run import installed
from nearsocket.onhost.apply.systemctl import Systemctl
from tests.onhost.apply.kill import killed
from tests.onhost.apply.made import PROGRAM, Host, generation


@pytest.fixture
def host(root: Path) -> Host:
    return Host(root)


def test_a_replica_is_taken_out_only_with_leave_and_then_without_a_trace(host: Host) -> None:
    both, one = generation({"a": "one", "b": "one"}, mount=True), generation({"a": "one"}, mount=True)
    host.apply(both)
    (host.root / "run/nearsocket/b/start").mkdir(parents=True)
    (host.root / "run/nearsocket/shm/b").mkdir(parents=True)
    host.system.change(containers=["nearsocket-x-b"])
    refused = host.apply(one)
    assert refused.error is not None
    assert "settings no longer have: b" in refused.error
    assert host.holds(both)
    outcome = host.apply(one, allow_removals=True)
    assert outcome.error is None
    assert host.holds(one)
    assert host.system.state["containers"] == []
    assert not (host.root / "run/nearsocket/b").exists()
    assert not (host.root / "run/nearsocket/shm/b").exists()
    stopped = host.system.state["calls"].index(["systemctl", "stop", "nearsocket-x-b.service"])
    removed = host.system.state["calls"].index(["docker", "rm", "--force", "--volumes", "nearsocket-x-b"])
    assert stopped < removed


def test_a_mount_that_is_not_released_keeps_the_generation_and_says_so(host: Host) -> None:
    both = generation({"a": "one", "b": "one"}, mount=True)
    host.apply(both)
    (host.root / "proc/self").mkdir(parents=True)
    (host.root / "proc/self/mountinfo").write_text("1 2 0:3 / /run/nearsocket/shm/b rw - tmpfs tmpfs rw,mpol=bind:0\n")
    outcome = host.apply(generation({"a": "one"}, mount=True), allow_removals=True)
    assert outcome.error is not None
    assert "/run/nearsocket/shm/b" in outcome.error
    assert (outcome.number, outcome.wrote) == (1, False)
    (host.root / "proc/self/mountinfo").unlink()
    assert host.apply(both).error is None
    assert host.holds(both)


def test_five_generations_stay_and_the_one_in_force_is_among_them(host: Host) -> None:
    for at in range(8):
        assert host.apply(generation({"a": f"v{at}"})).error is None
    assert host.tree.numbers() == [4, 5, 6, 7, 8]
    host.system.change(images=[generation({"a": "x"}).manifest.replicas[0].image])
    (host.root / "models/m").mkdir(parents=True)
    assert host.apply(None, number=4).error is None
    assert host.tree.number() == 4
    for at in range(9, 12):
        host.apply(generation({"a": f"v{at}"}))
    assert host.tree.number() == 11
    assert host.tree.numbers() == [7, 8, 9, 10, 11]


def test_going_back_needs_the_image_and_the_model_and_restarts_with_the_old_files(host: Host) -> None:
    old, new = generation({"a": "old"}), generation({"a": "new"})
    host.apply(old)
    host.apply(new)
    assert "expected the model /models/m" in str(host.apply(None).error)
    (host.root / "models/m").mkdir(parents=True)
    host.system.change(images=[])
    assert "expected the image" in str(host.apply(None).error)
    assert host.holds(new)
    host.system.change(images=[old.manifest.replicas[0].image])
    outcome = host.apply(None)
    assert (outcome.error, outcome.previous, outcome.number) == (None, 2, 1)
    assert host.holds(old)
    assert "to go back to, found 1, 2" in str(host.apply(None).error)
    assert "generation 9" in str(host.apply(None, number=9).error)


def test_a_damaged_generation_is_not_gone_back_to(host: Host) -> None:
    host.apply(generation({"a": "old"}))
    host.apply(generation({"a": "new"}))
    (host.tree.generation(1) / "env/a.env").write_text("X=1\n")
    assert "found env/a.env changed" in str(host.apply(None).error)


def test_kernel_settings_are_set_recorded_and_put_back(host: Host) -> None:
    (host.root / "proc/sys/vm").mkdir(parents=True)
    (host.root / "sys/kernel/mm/transparent_hugepage").mkdir(parents=True)
    swappiness, thp = host.at("/proc/sys/vm/swappiness"), host.at("/sys/kernel/mm/transparent_hugepage/enabled")
    swappiness.write_text("60\n")
    thp.write_text("always [madvise] never\n")
    conf = {"tmpfiles.d/nearsocket.conf": "# why\nw /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n"}
    made = generation({"a": "one"}, sysctl={"vm.swappiness": "1", "vm.absent": "1"}, extra=conf)
    outcome = host.apply(made)
    assert outcome.error is None
    assert swappiness.read_text() == "1"
    assert thp.read_text() == "never"
    assert any("no such setting" in note for note in outcome.notes)
    assert json.loads(host.tree.values.read_text())["/proc/sys/vm/swappiness"] == {"old": "60", "set": "1"}
    assert host.apply(made).changes == ()
    swappiness.write_text("10\n")
    drift = host.apply(made)
    assert [change.kind for change in drift.changes] == [Kind.VALUE]
    assert json.loads(host.tree.values.read_text())["/proc/sys/vm/swappiness"]["old"] == "60"
    host.apply(generation({"a": "one"}))
    assert swappiness.read_text() == "60"
    assert thp.read_text() == "madvise"
    assert not host.tree.values.exists()


def test_a_survey_says_what_is_installed_and_whether_it_is_as_it_should_be(host: Host) -> None:
    systemctl = Systemctl(host.system)
    assert not installed(PROGRAM, host.tree, systemctl).clean
    made = generation({"a": "one"})
    host.apply(made)
    found = installed(PROGRAM, host.tree, systemctl)
    assert (found.clean, found.number, found.digest, found.replicas) == (True, 1, made.manifest.digest, ("a",))
    assert not installed(b"newer", host.tree, systemctl).clean
    host.system.change(active={})
    assert installed(PROGRAM, host.tree, systemctl).reasons == ("start unit nearsocket-x-a.service (was inactive (dead))",)


def test_a_missing_image_is_pulled_before_the_switch_and_one_that_cannot_be_had_stops_nothing(host: Host) -> None:
    made = generation({"a": "one"})
    host.system.change(unpullable=[made.manifest.replicas[0].image])
    outcome = host.apply(made)
    assert outcome.error is not None
    assert outcome.error.startswith("expected to pull example.org/engine@sha256:")
    assert host.tree.number() is None
    host.system.change(unpullable=[])
    kinds = [change.kind for change in host.apply(made).changes]
    assert kinds.index(Kind.IMAGE) < kinds.index(Kind.GENERATION)
    assert host.holds(made)


def test_images_alone_are_pulled_and_nothing_else_is_touched(host: Host) -> None:
    outcome = host.apply(generation({"a": "one"}), part=Part.IMAGE)
    assert [change.kind for change in outcome.changes] == [Kind.IMAGE]
    assert host.system.state["images"]
    assert host.tree.number() is None
    assert host.apply(generation({"a": "one"}), part=Part.IMAGE).changes == ()


def test_the_tuning_alone_leaves_the_replicas_as_they_are_and_the_other_way_round(host: Host) -> None:
    old, new = generation({"a": "one"}, sysctl={"vm.x": "1"}), generation({"a": "two"}, sysctl={"vm.x": "2"})
    host.apply(old)
    ids = host.system.state["active"]
    outcome = host.apply(new, part=Part.TUNE)
    assert outcome.error is None
    assert [change.name for change in outcome.changes] == ["sysctl.d/nearsocket.conf", "2"]
    assert host.system.state["active"] == ids
    assert host.apply(new, part=Part.ENGINE).error is None
    assert host.holds(new)
    assert host.apply(new).changes == ()


@pytest.mark.parametrize("rebooted", [False, True])
def test_after_a_power_cut_the_boot_has_started_the_new_files_and_nothing_is_restarted(host: Host, rebooted: bool) -> None:
    boot = host.at("/proc/sys/kernel/random/boot_id")
    boot.parent.mkdir(parents=True)
    boot.write_text("one\n")
    host.apply(generation({"a": "one"}))
    made = generation({"a": "two"})
    assert killed(lambda bomb: host.apply(made), _first_after_the_switch(host, made), after=False)
    assert host.tree.number() == 2
    if rebooted:
        boot.write_text("two\n")
        text = made.contents["systemd/nearsocket-x-a.service"].decode()
        unit = {"nearsocket-x-a.service": {"text": text, "id": "f" * 32, "state": "active"}}
        times = {"nearsocket-x-a.service": host.system.time("nearsocket-x-a.service")}
        host.system.change(loaded={"nearsocket-x-a.service": text}, times=times, active=unit)
    changes = host.apply(made).changes
    assert [change.kind for change in changes] == ([] if rebooted else [Kind.SYSTEMD, Kind.UNIT])
    assert host.holds(made)
    assert not host.tree.journal.exists()


def _first_after_the_switch(host: Host, made: Generation) -> int:
    """The step behind the switch, found on a copy."""
    for at in range(1, 400):
        copy = Host(Path(shutil.copytree(host.root, host.root.parent / f"copy-{at}", symlinks=True)))
        assert killed(lambda bomb, copy=copy: copy.apply(made), at, after=False)  # type: ignore[misc]
        if copy.tree.number() == 2:
            return at
    raise AssertionError("the switch never came")


def test_a_unit_file_that_stays_as_it_is_looks_unchanged_to_systemd_in_the_next_generation(host: Host) -> None:
    host.apply(generation({"a": "one"}, extra={"env/other.env": "X=1\n"}))
    made = generation({"a": "one"}, extra={"env/other.env": "X=2\n"})
    before = len(host.system.calls("daemon-reload"))
    host.apply(made)
    assert host.tree.number() == 2
    assert host.apply(made).changes == ()
    assert len(host.system.calls("daemon-reload")) == before
