"""The record of a generation: who, when, which version, which commit."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

import nearsocket
from nearsocket.control import record as module
from nearsocket.control.record import record

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def git(folder: Path, *words: str) -> str:
    plain = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *plain, "-C", folder, *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if not shutil.which("git"):
        pytest.skip("no git on this machine")
    git(tmp_path, "init", "-q")
    (tmp_path / "fleet.yaml").write_text("hosts: []\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    return tmp_path / "fleet.yaml"


def test_the_commit_of_the_inventory_is_recorded_in_utc(repository: Path) -> None:
    made = record(repository, NOW, {"SUDO_USER": "ada"})
    assert made.commit == git(repository.parent, "rev-parse", "HEAD")
    assert made.committed_at and made.committed_at.endswith("Z")
    assert (made.made_at, made.version, made.dirty) == ("2026-01-31T12:00:00Z", nearsocket.__version__, False)
    assert made.made_by.startswith("ada@")


def test_changes_that_are_not_committed_are_told(repository: Path) -> None:
    repository.write_text("hosts: [1]\n")
    assert record(repository, NOW).dirty


def test_outside_a_repository_and_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record(tmp_path / "fleet.yaml", NOW).commit is None
    monkeypatch.setattr(module.subprocess, "run", lambda *a, **k: (_ for _ in ()).throw(FileNotFoundError()))
    assert record(tmp_path / "fleet.yaml", NOW).commit is None
    assert record(None, NOW).commit is None
