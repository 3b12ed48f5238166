"""An apply on a root of its own: what is made, that nothing is made twice, what is refused before anything is written."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from nearsocket.model.errors import NearsocketError
from nearsocket.model.order import Order, Part, from_json
from nearsocket.model.outcome import Action, Kind
from nearsocket.model.outcome import from_json as outcome_from
from nearsocket.onhost.apply import lock
from nearsocket.onhost.apply.run import installed
from nearsocket.onhost.apply.systemctl import Systemctl
from tests.onhost.apply.made import PROGRAM, Host, generation, record


@pytest.fixture
def host(root: Path) -> Host:
    return Host(root)


def test_the_first_apply_makes_everything_and_the_second_nothing(host: Host) -> None:
    made = generation({"a": "one", "b": "one"})
    first = host.apply(made)
    assert first.error is None
    assert host.holds(made)
    assert (first.previous, first.number) == (None, 1)
    assert host.at("/usr/local/lib/nearsocket/nearsocket.pyz").read_bytes() == PROGRAM
    assert first.states == {"nearsocket-x-a.service": "active (running)", "nearsocket-x-b.service": "active (running)"}
    before, calls = host.tree_of_files(), len(host.system.state["calls"])
    second = host.apply(made)
    assert (second.changes, second.diff, second.error, second.number) == ((), "", None, 1)
    assert host.tree_of_files() == before
    assert {words[1] for words in host.system.state["calls"][calls:]} <= {"show", "container"}


def test_the_same_content_by_another_hand_at_another_time_is_no_change(host: Host) -> None:
    host.apply(generation({"a": "one"}))
    again = host.apply(generation({"a": "one"}, made_by=record("c" * 40, "2031-01-01T00:00:00Z", "2031-01-01T00:00:00Z")))
    assert again.changes == ()


def test_only_what_changed_is_restarted_and_systemd_reloads_only_for_units(host: Host) -> None:
    host.apply(generation({"a": "one", "b": "one"}))
    reloads = len(host.system.calls("daemon-reload"))
    ids = {unit: entry["id"] for unit, entry in host.system.state["active"].items()}
    outcome = host.apply(generation({"a": "one", "b": "two"}))
    now = {unit: entry["id"] for unit, entry in host.system.state["active"].items()}
    assert outcome.error is None
    assert now["nearsocket-x-a.service"] == ids["nearsocket-x-a.service"]
    assert now["nearsocket-x-b.service"] != ids["nearsocket-x-b.service"]
    assert len(host.system.calls("daemon-reload")) == reloads + 1
    outcome = host.apply(generation({"a": "one", "b": "two"}, extra={"note.txt": "x\n"}))
    assert [change.kind for change in outcome.changes] == [Kind.FILE, Kind.GENERATION]
    assert len(host.system.calls("daemon-reload")) == reloads + 1


def test_enable_and_disable_are_never_called(host: Host) -> None:
    host.apply(generation({"a": "one", "b": "one"}))
    host.apply(generation({"a": "two"}), allow_removals=True)
    assert host.system.calls("enable") == host.system.calls("disable") == []


def test_dry_says_what_the_real_one_then_does_and_writes_nothing(host: Host) -> None:
    host.apply(generation({"a": "one"}, sysctl={"vm.swappiness": "1"}))
    made = generation({"a": "two", "b": "one"}, extra={"note.txt": "no end"})
    before = host.tree_of_files()
    dry = host.apply(made, dry=True)
    assert host.tree_of_files() == before
    real = host.apply(made)
    assert real.error is None
    assert (dry.changes, dry.diff, dry.number, dry.digest) == (real.changes, real.diff, real.number, real.digest)
    assert len(dry.changes) > 5


def test_the_diff_is_true_to_the_byte_and_masks_secrets(host: Host, tmp_path: Path) -> None:
    old, new = generation({"a": "one"}, extra={"n": "1\n2\n3"}), generation({"a": "two"}, extra={"n": "1\n2\n4", "m": "x"})
    host.apply(old)
    diff = host.apply(new, dry=True).diff
    assert "secret" not in diff
    assert "HF_TOKEN=<redacted>" in diff
    work = tmp_path / "work"
    for path, data in old.contents.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    shown = "\n--- ".join(part for part in f"\n{diff}".split("\n--- ") if "HF_TOKEN" not in part) + "\n"
    subprocess.run(["patch", "-p1", "-d", work], input=shown.encode(), check=True, capture_output=True)
    for path, data in new.contents.items():
        if not path.startswith("env/"):
            assert (work / path).read_bytes() == data, path


def test_a_file_changed_by_hand_is_kept_aside_told_and_put_right(host: Host) -> None:
    made = generation({"a": "one"})
    host.apply(made)
    path = host.tree.current / "systemd/nearsocket-x-a.service"
    path.write_text("[Service]\nExecStart=/bin/by-hand\n")
    dry = host.apply(made, dry=True)
    assert "-ExecStart=/bin/by-hand" in dry.diff
    outcome = host.apply(made)
    assert outcome.error is None
    assert host.holds(made)
    asides = [change for change in outcome.changes if change.action is Action.ASIDE]
    assert [change.name for change in asides] == ["systemd/nearsocket-x-a.service"]
    kept = list(host.tree.aside.rglob("*.service"))
    assert [file.read_text() for file in kept] == ["[Service]\nExecStart=/bin/by-hand\n"]
    assert host.apply(made).changes == ()


def test_a_managed_link_replaced_by_a_file_is_kept_aside_and_made_again(host: Host) -> None:
    made = generation({"a": "one"})
    host.apply(made)
    link = host.at("/etc/systemd/system/nearsocket-x-a.service")
    link.unlink()
    link.write_text("edited\n")
    outcome = host.apply(made)
    assert outcome.error is None
    assert host.holds(made)
    assert [file.read_text() for file in host.tree.aside.rglob("*.service")] == ["edited\n"]


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_anothers_stops_the_apply_before_anything_is_written(host: Host, kind: str) -> None:
    path = host.at("/etc/systemd/system/nearsocket-x-a.service")
    if kind == "file":
        path.write_text("theirs\n")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/opt/theirs.service")
    before = host.tree_of_files()
    outcome = host.apply(generation({"a": "one"}))
    assert outcome.error is not None
    assert "/etc/systemd/system/nearsocket-x-a.service" in outcome.error
    assert not outcome.wrote
    assert host.tree_of_files() == before


def test_anothers_container_stops_the_first_apply_with_its_name(host: Host) -> None:
    host.system.change(containers=["nearsocket-x-a"])
    outcome = host.apply(generation({"a": "one"}))
    assert outcome.error is not None
    assert "container nearsocket-x-a" in outcome.error
    assert host.tree.number() is None


def test_a_port_that_is_held_stops_the_first_apply_with_the_holders_name(host: Host) -> None:
    (host.root / "proc/net").mkdir(parents=True)
    row = "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 4711 1 0 100 0 0 10 0"
    (host.root / "proc/net/tcp").write_text(f"head\n{row}\n")
    (host.root / "proc/77/fd").mkdir(parents=True)
    (host.root / "proc/77/fd/3").symlink_to("socket:[4711]")
    (host.root / "proc/77/comm").write_text("nginx\n")
    outcome = host.apply(generation({"a": "one"}))
    assert outcome.error == "expected port 30000 to be free for replica a, found process 77 (nginx) listening"


def test_a_second_apply_at_the_same_time_is_told_who_holds_the_lock(host: Host) -> None:
    with lock.exclusive(host.tree, "ops from example", 0):
        for dry in (False, True):
            outcome = host.apply(generation({"a": "one"}), dry=dry)
            assert outcome.error is not None
            assert f"process {os.getpid()}, ops from example" in outcome.error
    assert host.apply(generation({"a": "one"})).error is None


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


def test_an_older_commit_needs_force(host: Host) -> None:
    host.apply(generation({"a": "new"}, made_by=record("b" * 40, "2030-02-01T00:00:00Z")))
    old = generation({"a": "old"}, made_by=record("a" * 40, "2030-01-01T00:00:00Z"))
    refused = host.apply(old)
    assert refused.error is not None
    assert "commit bbbbbbbbbbbb" in refused.error
    assert host.apply(old, force=True).error is None


def test_a_reload_that_could_take_gpus_is_refused_but_nothing_else_is(host: Host) -> None:
    risk = "container x may lose its GPUs"
    outcome = host.apply(generation({"a": "one"}), reload_risk=risk)
    assert outcome.error is not None
    assert risk in outcome.error
    assert host.tree.number() is None
    host.apply(generation({"a": "one"}))
    assert host.apply(generation({"a": "one"}, extra={"n": "x\n"}), reload_risk=risk).error is None


def test_a_unit_that_does_not_start_is_an_error_and_the_next_run_tries_again(host: Host) -> None:
    host.system.change(broken=["nearsocket-x-b.service"])
    made = generation({"a": "one", "b": "one"})
    outcome = host.apply(made)
    assert outcome.error is not None
    assert "nearsocket-x-b.service is failed" in outcome.error
    assert (outcome.wrote, outcome.number) == (True, 1)
    host.system.change(broken=[])
    again = host.apply(made)
    assert [str(change) for change in again.changes] == ["start unit nearsocket-x-b.service (was inactive (dead))"]
    assert host.holds(made)


def test_a_restart_that_fails_leaves_the_others_serving_and_the_next_run_goes_on(host: Host) -> None:
    host.apply(generation({"a": "one", "b": "one"}))
    host.system.change(broken=["nearsocket-x-a.service"])
    made = generation({"a": "two", "b": "two"})
    outcome = host.apply(made)
    assert outcome.error is not None
    assert outcome.error.startswith("nearsocket-x-a.service did not restart")
    assert host.system.state["active"]["nearsocket-x-b.service"]["text"].endswith("/bin/one\n")
    host.system.change(broken=[])
    assert host.apply(made).error is None
    assert host.holds(made)
    assert host.apply(made).changes == ()


def test_a_changed_mount_goes_down_and_up_with_its_service(host: Host) -> None:
    host.apply(generation({"a": "one"}, mount=True))
    host.system.change(
        active={**host.system.state["active"], "run-nearsocket-shm-a.mount": {"text": "", "id": "9", "state": "active"}}
    )
    host.apply(generation({"a": "two"}, mount=True))
    verbs = [words[1:] for words in host.system.state["calls"] if words[1] in ("stop", "start", "restart")]
    assert verbs[-3:] == [
        ["stop", "nearsocket-x-a.service"],
        ["stop", "run-nearsocket-shm-a.mount"],
        ["start", "nearsocket-x-a.service"],
    ]


def test_a_unit_that_is_still_starting_is_waited_for_and_counts_as_no_change(host: Host) -> None:
    made = generation({"a": "one"})
    host.apply(made)
    active = host.system.state["active"]
    active["nearsocket-x-a.service"]["state"] = "activating"
    host.system.change(active=active)
    outcome = host.apply(made)
    assert outcome.changes == ()
    assert host.system.state["active"]["nearsocket-x-a.service"]["state"] == "active"


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


def test_a_new_program_is_installed_and_restarts_nothing(host: Host) -> None:
    made = generation({"a": "one"})
    host.apply(made)
    ids = host.system.state["active"]
    outcome = host.apply(made, program=b"newer")
    assert [change.kind for change in outcome.changes] == [Kind.PROGRAM]
    assert host.tree.program.read_bytes() == b"newer"
    assert host.system.state["active"] == ids


def test_a_manifest_changed_by_hand_is_replaced_and_its_units_restarted(host: Host) -> None:
    made = generation({"a": "one"})
    host.apply(made)
    manifest = host.tree.current / "manifest.json"
    manifest.write_text(manifest.read_text().replace("sglang", "vllm"))
    outcome = host.apply(made)
    assert outcome.error is None
    assert any("cannot be read" in note for note in outcome.notes)
    assert host.holds(made)
    assert host.system.calls("restart")


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


def test_orders_and_outcomes_survive_their_way(host: Host) -> None:
    order = Order(generation({"a": "one"}), dry=True, reload_risk="x", lock_wait_s=3.5)
    assert from_json(order.to_json()) == order
    outcome = host.apply(order.generation)
    assert outcome_from(outcome.to_json()) == outcome


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


def test_an_option_that_nobody_knows_and_an_order_that_is_none_are_one_line() -> None:
    for text in ("", "[]", '{"schema": "nearsocket.order/1"}', '{"schema": "x"}', "\0"):
        with pytest.raises(NearsocketError):
            from_json(text)


def test_an_order_whose_contents_are_not_the_manifests_is_refused() -> None:
    order = json.loads(Order(generation({"a": "one"})).to_json())
    order["contents"]["env/a.env"] = "AAAA"
    with pytest.raises(NearsocketError, match=r"env/a\.env"):
        from_json(json.dumps(order))
