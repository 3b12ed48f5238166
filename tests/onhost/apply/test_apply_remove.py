"""Leaving a host: as it was before the first apply, whatever came between; or with the engines running on by themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from nearsocket.model import places, read, start
from nearsocket.model.outcome import Outcome
from nearsocket.model.settings import Hooks, OnFar, Verify
from nearsocket.model.standalone import alone
from nearsocket.onhost.apply import freeze, lock
from nearsocket.onhost.verify import publish
from tests.onhost.apply.kill import killed
from tests.onhost.apply.made import Host, generation
from tests.plan.hosts import asked, four_on_one_socket
from tests.plan.hosts import replica as wanted
from tests.plan.rendered import CASES
from tests.plan.rendered import made as rendered

SWAPPINESS = "/proc/sys/vm/swappiness"
HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
TUNED = generation(
    {"a": "one", "b": "one"},
    sysctl={"vm.swappiness": "1"},
    extra={"tmpfiles.d/nearsocket.conf": f"w! {HUGE} - - - - madvise\n"},
    mount=True,
)

#: Some hundred runs each where a cut is tried everywhere; seconds on a machine that is at rest.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("quick_disk")]


@pytest.fixture
def host(root: Path) -> Host:
    return before_us(root)


def before_us(root: Path) -> Host:
    """A host with files, units and values of its own."""
    made = Host(root)
    for path, text in (
        (SWAPPINESS, "60"),
        (HUGE, "always"),
        ("/etc/sysctl.d/10-theirs.conf", "vm.swappiness = 60\n"),
        ("/etc/systemd/system/theirs.service", "[Service]\nExecStart=/bin/theirs\n"),
        ("/var/lib/theirs/state", "x"),
        ("/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/vda1 rw\n"),
    ):
        made.at(path).parent.mkdir(parents=True, exist_ok=True)
        made.at(path).write_text(text)
    (made.at("/etc/systemd/system/multi-user.target.wants")).mkdir()
    made.at("/etc/systemd/system/multi-user.target.wants/theirs.service").symlink_to("../theirs.service")
    made.system.change(active={"theirs.service": {"text": "[Service]\nExecStart=/bin/theirs\n", "id": "7", "state": "active"}})
    return made


def everything(host: Host) -> dict[str, object]:
    """Files, units, mounts, kernel settings: all that can be compared."""
    run = sorted(str(path.relative_to(host.root)) for path in host.at("/run").rglob("*")) if host.at("/run").exists() else []
    return {"files": host.tree_of_files(), "units": host.system.state["active"], "run": [path for path in run if path != "run"]}


def remove(host: Host, **options: object) -> Outcome:
    return host.apply(None, remove=True, **options)


def slices_are_there(host: Host) -> None:
    """systemd makes them above what runs, and keeps them."""
    made = {name: {"text": "", "id": "8", "state": "active"} for name in ("nearsocket.slice", "nearsocket-probe.slice")}
    host.system.change(active={**host.system.state["active"], **made})


@pytest.mark.parametrize("hierarchy", ["", "unified/", "systemd/"])
def test_a_slice_that_holds_somebody_elses_process_stays(host: Host, hierarchy: str) -> None:
    assert host.apply(TUNED).error is None
    slices_are_there(host)
    for name, inside in (("nearsocket.slice/docker-x.scope", "4242\n"), ("nearsocket.slice/nearsocket-probe.slice", "")):
        group = host.at(f"/sys/fs/cgroup/{hierarchy}{name}")
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(inside)
    assert remove(host).error is None
    assert [name for name in host.system.state["active"] if name.endswith(".slice")] == ["nearsocket.slice"]


def test_after_removal_nothing_differs_from_before_the_first_apply(host: Host) -> None:
    before = everything(host)
    assert host.apply(TUNED).error is None
    assert host.at(SWAPPINESS).read_text() == "1"
    assert host.apply(generation({"a": "two", "c": "one"}, sysctl={"vm.swappiness": "5"}), allow_removals=True).error is None
    (host.tree.current / "systemd/nearsocket-x-a.service").write_text("by hand\n")
    host.at("/run/nearsocket/a/2030").mkdir(parents=True)
    slices_are_there(host)
    outcome = remove(host)
    assert outcome.error is None
    assert outcome.number is None
    assert everything(host) == before


def test_a_host_that_lacked_the_folders_lacks_them_again(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()
    host = Host(root)
    shutil.rmtree(root / "etc/systemd")
    before = everything(host)
    assert host.apply(TUNED).error is None
    assert remove(host).error is None
    shutil.rmtree(root / "run")
    assert everything(host) == before


def test_a_folder_that_somebody_else_uses_by_now_stays(root: Path) -> None:
    host = Host(root)
    assert host.apply(TUNED).error is None
    host.at("/etc/systemd/system/multi-user.target.wants/later.service").symlink_to("../later.service")
    assert remove(host).error is None
    assert host.at("/etc/systemd/system/multi-user.target.wants/later.service").is_symlink()


def test_dry_says_what_the_real_one_then_does_and_a_second_removal_has_nothing_to_do(host: Host) -> None:
    host.apply(TUNED)
    before = everything(host)
    dry = remove(host, dry=True)
    assert everything(host) == before
    real = remove(host)
    assert dry.changes == real.changes
    said = [str(change) for change in real.changes]
    assert f"set value {SWAPPINESS} (60, the value from before nearsocket)" in said
    assert "remove replica a" in said
    assert "remove file /usr/local/lib/nearsocket" in said
    again = remove(host)
    assert (again.changes, again.error) == ((), None)


def test_a_removal_is_cut_anywhere_and_the_next_one_completes(tmp_path: Path) -> None:
    before = everything(before_us(tmp_path / "untouched"))
    base = before_us(tmp_path / "base")
    assert base.apply(TUNED).error is None
    for at in range(1, 1000):
        root = tmp_path / "root"
        shutil.copytree(base.root, root, symlinks=True)
        host = Host(root)
        if not killed(lambda bomb, host=host: remove(host), at, False):  # type: ignore[misc]
            break
        outcome = remove(host)
        assert outcome.error is None, (at, outcome.error)
        assert everything(host) == before, at
        shutil.rmtree(root)
    else:
        raise AssertionError("the removal never came to its end")
    assert at > 40, "expected a removal of many steps"


@pytest.mark.parametrize("case", sorted(CASES))
def test_kept_engines_run_on_unrestarted_by_units_that_need_nothing_of_ours(host: Host, case: str) -> None:
    made = CASES[case]()
    before = everything(host)
    assert host.apply(made).error is None
    engines = {replica.unit for replica in made.manifest.replicas}
    slices_are_there(host)
    kept = {*engines, "theirs.service", "nearsocket.slice", "nearsocket-probe.slice"}
    running = {unit: entry["id"] for unit, entry in host.system.state["active"].items() if unit in kept}
    calls = len(host.system.state["calls"])
    outcome = remove(host, keep_engines=True)
    assert outcome.error is None
    assert {unit: entry["id"] for unit, entry in host.system.state["active"].items()} == running
    verbs = {words[1] for words in host.system.state["calls"][calls:]}
    assert not verbs & {"restart", "start", "rm"}
    stopped = {unit for words in host.system.state["calls"][calls:] if words[1] == "stop" for unit in words[2:]}
    assert not stopped & engines
    assert "daemon-reload" in verbs
    after = everything(host)["files"]
    assert isinstance(after, dict)
    assert isinstance(before["files"], dict)
    added = {path: text for path, text in after.items() if path not in before["files"]}
    assert not [path for path, text in added.items() if "/etc/nearsocket/" in text or "/usr/local/lib/nearsocket" in text]
    for replica in made.manifest.replicas:
        unit = host.at(f"/etc/systemd/system/{replica.unit}")
        assert not unit.is_symlink()
        boot = host.at(f"/etc/systemd/system/multi-user.target.wants/{replica.unit}")
        assert str(boot.readlink()) == f"/etc/systemd/system/{replica.unit}"
        environment = host.at(f"/etc/default/{replica.unit.removesuffix('.service')}")
        assert environment.stat().st_mode & 0o777 == 0o600
        assert f"--env-file=/etc/default/{replica.unit.removesuffix('.service')}" in unit.read_text()
        assert host.system.state["loaded"][replica.unit] == unit.read_text()
    assert {path: text for path, text in after.items() if path in before["files"]} == before["files"]


@pytest.mark.parametrize("way", ["keep", "remove", "take out"])
def test_no_metrics_stay_in_a_collectors_folder_when_nobody_writes_them_any_more(host: Host, way: str) -> None:
    """Values outlive their writer, and the folder may be another one than the settings have now: the last verdict knows it."""
    folder = host.at("/var/lib/collector")
    folder.mkdir()
    made = CASES["recipe-docker"]()
    assert host.apply(made).error is None
    for replica in made.manifest.replicas:
        value = {"schema": places.SCHEMA, "metrics": "/var/lib/collector"}
        publish.write(host.root, replica.name, json.dumps(value))
        host.at(places.metrics_file("/var/lib/collector", replica.name)).touch()
        host.at(places.stopped_file("/var/lib/collector", replica.name)).touch()
    (folder / "theirs.prom").touch()
    if way == "take out":
        outcome = host.apply(generation({"z": "one"}), allow_removals=True)
    else:
        outcome = remove(host, keep_engines=way == "keep")
    assert outcome.error is None
    assert [path.name for path in folder.iterdir()] == ["theirs.prom"]


@pytest.mark.parametrize("policy", OnFar)
def test_a_unit_that_stands_alone_has_nothing_of_the_proof(policy: OnFar) -> None:
    one = wanted("a", verify=Verify(policy, metrics="/var/lib/collector"), hooks=Hooks(drain=("/bin/out",), undrain=("/bin/in",)))
    made = rendered(read.host(four_on_one_socket()), asked(one))
    files, _ = alone(made, {"a": start.from_json(made.contents["replicas/a.json"].decode())})
    [text] = [entry.content.decode() for entry in files if entry.path.endswith("nearsocket-sglang-a.service")]
    for word in ("acted-far", ".prom", "nearsocket.pyz", "docs/verify.md"):
        assert word not in text
    assert "ExecStartPost=-/bin/in" in text


def test_the_unit_that_stands_alone_starts_the_same_container(host: Host) -> None:
    made = CASES["awkward"]()
    assert host.apply(made).error is None
    assert remove(host, keep_engines=True).error is None
    text = host.at("/etc/systemd/system/nearsocket-sglang-odd.service").read_text()
    start = made.contents["systemd/nearsocket-sglang-odd.service"].decode()
    block = start[start.index("ExecStart=") : start.index("ExecStartPost=")]
    assert block.replace("/etc/nearsocket/current/env/odd.env", "/etc/default/nearsocket-sglang-odd") in text
    assert "ExecStartPre=/usr/bin/install -d -m 1777 /run/nearsocket/odd/start" in text
    assert "/etc/secrets/hf" in text
    assert "START_DIR=/run/nearsocket/odd/start" in text


def test_keeping_engines_is_cut_anywhere_and_the_next_one_completes(tmp_path: Path) -> None:
    made = CASES["recipe-docker"]()
    base = before_us(tmp_path / "base")
    assert base.apply(made).error is None
    whole = before_us(tmp_path / "whole")
    assert whole.apply(made).error is None
    assert remove(whole, keep_engines=True).error is None
    wanted = {key: value for key, value in everything(whole).items() if key != "run"}
    for at in range(1, 1000):
        root = tmp_path / "root"
        shutil.copytree(base.root, root, symlinks=True)
        host = Host(root)
        if not killed(lambda bomb, host=host: remove(host, keep_engines=True), at, False):  # type: ignore[misc]
            break
        outcome = remove(host, keep_engines=True)
        assert outcome.error is None, (at, outcome.error)
        assert {key: value for key, value in everything(host).items() if key != "run"} == wanted, at
        shutil.rmtree(root)
    assert at > 30


def test_a_template_of_ones_own_that_needs_the_program_is_refused_with_nothing_changed(host: Host) -> None:
    made = CASES["recipe-docker"]()
    unit = made.manifest.replicas[0].unit
    assert host.apply(made).error is None
    path = host.tree.current / f"systemd/{unit}"
    path.write_text(path.read_text().replace("[Install]", "ExecReload=/etc/nearsocket/mine\n[Install]"))
    before = everything(host)
    outcome = remove(host, keep_engines=True)
    assert outcome.error is not None
    assert "ExecReload=/etc/nearsocket/mine" in outcome.error
    assert everything(host)["files"] == before["files"]


def test_a_reload_that_would_strip_a_container_stops_the_removal_too(host: Host) -> None:
    host.apply(TUNED)
    before = everything(host)
    outcome = remove(host, reload_risk="container x may lose its GPUs")
    assert "container x" in (outcome.error or "")
    assert everything(host)["files"] == before["files"]


def test_a_freeze_stops_the_removal_and_its_file_outlasts_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freeze, "today", lambda: "2030-06-15")
    host.apply(TUNED)
    host.at("/etc/nearsocket/freeze").write_text("reason: not now\n")
    assert "not now" in (remove(host).error or "")
    assert remove(host, override_freeze="it burns").error is None
    assert host.at("/etc/nearsocket/freeze").read_text() == "reason: not now\n"
    assert [path.name for path in host.at("/etc/nearsocket").iterdir()] == ["freeze"]


def test_whoever_waited_for_a_removal_locks_a_lock_that_others_see(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lock.exclusive(host.tree, "first", 0)
    first.__enter__()

    def gone(_seconds: float) -> None:
        lock.forget(host.tree)
        first.__exit__(None, None, None)

    monkeypatch.setattr(lock.time, "sleep", gone)
    with lock.exclusive(host.tree, "second", 60):
        assert "second" in host.tree.lock.read_text()
        assert "second" in (host.apply(TUNED).error or "")
