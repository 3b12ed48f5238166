"""Deploys on a lab's machine, without a machine: the fleet file, the command, what is repeated and what is counted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab import site
from lab.errors import LabError
from lab.state import LabFolder, LabRecord, MachineRecord
from nearsocket.control import fleet
from nearsocket.model.settings import Layer

MACHINE = MachineRecord("lab", 2222, "uuid")
RECORD = LabRecord("lab", "gpus", "full", "x", "tcg", (MACHINE,), ready=True)
IMAGE = f"127.0.0.1:5000/sglang@sha256:{'0' * 64}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEARSOCKET_LAB_STATE", str(tmp_path / "state"))
    path = LabFolder("lab").machine("lab")
    path.mkdir(parents=True)
    return path


def test_the_fleet_file_is_one_that_nearsocket_reads(folder: Path) -> None:
    path = site.write_fleet(
        RECORD, MACHINE, IMAGE, site.replicas(binding=["shm"]), tune={"swappiness": 1}, serve={"runtime": "podman"}
    )
    [target] = fleet.read(path).targets
    assert target.ssh and target.settings
    assert (target.ssh.hostname, target.ssh.port, target.ssh.known_hosts_file) == (
        "127.0.0.1",
        2222,
        str(LabFolder("lab").known_hosts),
    )
    assert [replica.gpus.wanted for replica in target.settings.replicas] == [("0", "1"), ("2", "3")]
    assert {replica.binding for replica in target.settings.replicas} == {frozenset({Layer.SHM})}
    assert target.settings.tune.swappiness == 1


def answers(monkeypatch: pytest.MonkeyPatch, *said: str, code: int = 1) -> list[list[str]]:
    asked: list[list[str]] = []
    turn = iter(said)

    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, code, next(turn), "")

    monkeypatch.setattr(site.subprocess, "run", run)
    return asked


def test_a_run_on_a_machine_that_was_too_busy_is_repeated_and_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = (
        "expected to read nvml before planning, found: no answer (run it again; a busy host may need a higher nearsocket_timeout)"
    )
    asked = answers(monkeypatch, busy, busy, "refused for another reason\x1b[31m\n")
    assert site.deploy(folder / "fleet.yaml") == site.Ran(1, "refused for another reason [31m", 3)
    assert len(asked) == 3


def test_a_run_that_was_refused_is_not_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, "refused")
    assert site.deploy(folder / "fleet.yaml", "rollback.py", "--data", "generation=1").tries == 1
    assert asked[0][1:3] == ["-m", "pyinfra"]
    assert [Path(word).name for word in asked[0][3:5]] == ["fleet.py", "rollback.py"]
    assert "--data" in asked[0] and "generation=1" in asked[0]


def test_what_the_host_was_asked_for_leaves_out_the_counting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(["10\n", "12\n"])
    monkeypatch.setattr(site.ssh, "run", lambda *_: subprocess.CompletedProcess([], 0, next(counts), ""))
    answers(monkeypatch, "said")
    assert site.counted(RECORD, MACHINE, folder / "fleet.yaml")[1] == 1


def test_a_journal_that_says_nothing_is_no_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.ssh, "run", lambda *_: subprocess.CompletedProcess([], 1, "", "no journal"))
    with pytest.raises(LabError, match="found: no journal"):
        site.counted(RECORD, MACHINE, folder / "fleet.yaml")
