"""`nearsocket plan`, from saved snapshots."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from nearsocket.commands.plan import plan as command
from nearsocket.control import planning, snapshots, workers
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.model import read
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.plan.report import HostPlan, PlanStatus, exit_code
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.report import plan as page
from nearsocket.report.terminal import console
from tests.plan.hosts import asked, four_on_one_socket, replica
from tests.plan.rendered import RECIPE, TEMPLATES, made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    snapshots.save(four_on_one_socket(), tmp_path / "snapshots")
    return tmp_path / "snapshots"


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words], standalone_mode=False)


def managed(snapshot: Snapshot, manifest: str) -> Snapshot:
    return dataclasses.replace(snapshot, sources={**snapshot.sources, "generation": Source(SourceStatus.OK, manifest)})


def test_the_page_says_what_goes_where_and_why_and_what_is_written(folder: Path) -> None:
    done = run(RECIPE, "--from-snapshots", folder)
    assert done.return_value == 0
    for words in (
        "READY  gpu1",
        "0000:c1:00.0 (index 0), 0000:c2:00.0 (index 1)",
        "9-11,25-27  3 of 8 cores of socket 1, 2 replicas share it, 1 left for the system",
        "the unit binds: one owner",
        "layer per-rank       not used",
        "+ env/glm-a.env  0600",
        "daemon-reload        yes",
        "starts               nearsocket-sglang-glm-a.service, nearsocket-sglang-glm-b.service",
    ):
        assert " ".join(words.split()) in " ".join(done.output.split()), words


def test_json_is_one_object_and_no_value_of_the_environment(folder: Path) -> None:
    done = run(RECIPE, "--from-snapshots", folder, "--json", "--check")
    whole = json.loads(done.output)
    assert (whole["schema"], whole["exit_code"], done.return_value) == ("nearsocket.plan/1", 4, 4)
    [host] = whole["hosts"]
    assert host["status"] == "ready"
    assert host["replicas"][0]["memory_nodes"] == [1]
    assert [layer["layer"] for layer in host["replicas"][0]["layers"] if layer["used"]] == ["cumem", "shm", "numactl"]
    assert host["changes"]["start"] == [
        "nearsocket-sglang-glm-a.service",
        "nearsocket-sglang-glm-b.service",
        "nearsocket-watch.timer",
    ]
    assert "786432" not in done.output


def test_what_is_in_force_already_is_no_change(folder: Path, tmp_path: Path) -> None:
    run(RECIPE, "--from-snapshots", folder, "--render", tmp_path / "out")
    manifest = (tmp_path / "out" / "gpu1" / "manifest.json").read_text()
    snapshots.save(managed(four_on_one_socket(), manifest), folder)
    done = run(RECIPE, "--from-snapshots", folder, "--check")
    assert done.return_value == 0
    assert "CURRENT" in done.output
    assert "nothing changes" in done.output


def test_a_replica_that_would_be_taken_out_is_told_and_needs_leave(folder: Path) -> None:
    host = read.host(four_on_one_socket())
    there = made(host, asked(replica("old", gpus=["0"]))).manifest.to_json()
    snapshots.save(managed(four_on_one_socket(), there), folder)
    done = run(RECIPE, "--from-snapshots", folder, "--check")
    assert done.return_value == 4
    assert "takes out            old" in done.output
    assert "allow_removals" in done.output
    assert "- env/old.env" in done.output


@pytest.mark.parametrize(
    "source",
    [Source(SourceStatus.OK, "{}"), Source(SourceStatus.DENIED, reason="no permission"), Source(SourceStatus.OK, "{\x1b[31m")],
)
def test_a_manifest_that_cannot_be_read_is_said_and_not_taken_for_nothing(folder: Path, source: Source) -> None:
    broken = four_on_one_socket()
    snapshots.save(dataclasses.replace(broken, sources={**broken.sources, "generation": source}), folder)
    done = run(RECIPE, "--from-snapshots", folder, "--check")
    assert done.return_value == 4
    assert "what is there now is not known" in done.output
    assert "daemon-reload" not in done.output
    assert "\x1b" not in done.output


def test_a_review_folder_is_compared_and_not_written_with_check(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(RECIPE, "--from-snapshots", folder, "--render", out, "--check").return_value == 4
    assert not out.exists()
    assert run(RECIPE, "--from-snapshots", folder, "--render", out).return_value == 0
    assert run(RECIPE, "--from-snapshots", folder, "--render", out, "--check").return_value == 0
    (out / "gpu1" / "env" / "glm-a.env").write_text("X=1\n")
    (out / "gpu1" / "stale").write_text("")
    done = run(RECIPE, "--from-snapshots", folder, "--render", out, "--check", "--json")
    assert json.loads(done.output)["hosts"][0]["review"] == ["env/glm-a.env", "stale"]
    run(RECIPE, "--from-snapshots", folder, "--render", out)
    assert not (out / "gpu1" / "stale").exists()


def test_somebody_elses_folder_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "gpu1").mkdir(parents=True)
    (tmp_path / "out" / "gpu1" / "thesis.txt").write_text("mine")
    done = run(RECIPE, "--from-snapshots", folder, "--render", tmp_path / "out")
    assert isinstance(done.exception, NearsocketError)
    assert (tmp_path / "out" / "gpu1" / "thesis.txt").read_text() == "mine"


def test_refused_is_2_with_the_reason_and_what_to_do(folder: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(RECIPE.read_text().replace("0000:c4:00.0", "0000:d4:00.0"))
    done = run(fleet, "--from-snapshots", folder, "--render", tmp_path / "out")
    assert done.return_value == 2
    assert "REFUSED  gpu1" in done.output
    assert "GPU 0000:d4:00.0: this host has no such GPU" in done.output
    assert not (tmp_path / "out").exists()


def test_a_value_that_cannot_be_written_is_a_failure_of_that_host(folder: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(RECIPE.read_text().replace("runtime: docker", "runtime: podman").replace('"786432"', "'\"786432\"'"))
    done = run(fleet, "--from-snapshots", folder)
    assert done.return_value == 2
    assert "FAILED  gpu1" in done.output
    assert "SGLANG_PCIE_IPC_MAX_NUMEL: expected a value that does not begin with a quote" in " ".join(done.output.split())


def test_wrong_usage_is_told_in_one_line(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text("hosts: [{name: gpu1}]\n")
    for words, expected in (
        ([plain, "--from-snapshots", folder], "expected `serve`, `replicas` or `tune`"),
        ([RECIPE, "--from-snapshots", tmp_path], "expected the snapshot of gpu1"),
        (["@local", "--from-snapshots", folder], "expected `serve`"),
    ):
        done = run(*words)
        assert isinstance(done.exception, UsageError)
        assert expected in done.exception.message


def test_a_host_that_is_not_reached_fails_and_the_others_are_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def collect(target: Any, timeout_s: float, children: Any) -> Snapshot:
        if target.name == "gpu2":
            raise TransportError(Trouble.DENIED, "no key is accepted", "ssh-add", "")
        return four_on_one_socket()

    monkeypatch.setattr(planning, "collect", collect)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(RECIPE.read_text() + "  - {name: gpu2, tune: {swappiness: 1}}\n")
    done = run(fleet)
    assert done.return_value == 2
    assert "READY  gpu1" in done.output
    assert "the host could not be read: no key is accepted" in done.output


@pytest.mark.parametrize("fault", [OSError(24, "Too many open files"), RuntimeError("odd\x1b[31m"), KeyError("nodes")])
@pytest.mark.parametrize("place", ["collect", "plan"])
def test_an_odd_host_is_a_failed_plan_and_the_others_are_planned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Exception, place: str
) -> None:
    whole = planning.plan

    def collect(target: Any, timeout_s: float, children: Any) -> Snapshot:
        if target.name == "gpu2" and place == "collect":
            raise fault
        return dataclasses.replace(four_on_one_socket(), host=target.name)

    def odd(host: Any, settings: Any) -> Any:
        if host.name == "gpu2" and place == "plan":
            raise fault
        return whole(host, settings)

    monkeypatch.setattr(planning, "collect", collect)
    monkeypatch.setattr(planning, "plan", odd)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(RECIPE.read_text() + "  - {name: gpu2, tune: {swappiness: 1}}\n")
    done = run(fleet)
    assert done.return_value == 2
    assert "READY  gpu1" in done.output
    assert "FAILED  gpu2" in done.output
    assert "expected to plan for this host, found:" in done.output
    assert "\x1b" not in done.output


def test_without_a_thread_to_be_had_hosts_are_planned_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_thread(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(planning, "collect", lambda target, *_: dataclasses.replace(four_on_one_socket(), host=target.name))
    monkeypatch.setattr(workers.threading, "Thread", no_thread)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(RECIPE.read_text() + "  - {name: gpu2, tune: {swappiness: 1}}\n")
    done = run(fleet)
    assert done.return_value == 0
    assert [line.split()[1] for line in done.output.splitlines() if line.startswith("READY")] == ["gpu1", "gpu2"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_page_keeps_its_width_and_prints_nothing_raw(width: int) -> None:
    host = read.host(four_on_one_socket())
    entries: Sequence[HostPlan] = [
        planning.planned(target("gpu1\x1b[31m"), host, TEMPLATES)[0],
        HostPlan("gpu2", None, None, None, "broken\x07", "look"),
    ]
    stream = io.StringIO()
    to: Console = console(stream, width)
    page.show(entries, to, 2)
    lines = stream.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert "\x1b" not in stream.getvalue()
    assert "\x07" not in stream.getvalue()


def target(name: str) -> Any:
    from nearsocket.control.target import Target, Way

    return Target(name, Way.LOCAL, settings=asked(replica("a"), replica("b")))


def test_the_exit_code_is_the_worst() -> None:
    current = HostPlan("a", None, None, None, "broken")
    assert current.status is PlanStatus.FAILED
    assert exit_code([current], check=True, review=False) == 2
    assert exit_code([], check=True, review=False) == 0
