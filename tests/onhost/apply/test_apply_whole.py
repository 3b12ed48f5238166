"""An apply on a root of its own: what is made, what is told beforehand, and that nothing is made twice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nearsocket.model.outcome import Action, Kind
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


def test_a_start_that_systemd_calls_done_and_that_is_not_up_is_an_error(host: Host) -> None:
    host.apply(generation({"a": "one"}))
    host.system.change(vanishing=["nearsocket-x-a.service", "nearsocket-x-b.service"])
    assert "nearsocket-x-b.service is inactive" in (host.apply(generation({"a": "one", "b": "one"})).error or "")
    outcome = host.apply(generation({"a": "two", "b": "one"}))
    assert "nearsocket-x-a.service did not restart: nearsocket-x-a.service is inactive" in (outcome.error or "")


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
