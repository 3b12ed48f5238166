"""`nearsocket import` from a saved snapshot to the fleet file: what is written, what is never overwritten, the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from nearsocket.cli import cli
from nearsocket.control import fleet
from nearsocket.control.importing import write
from nearsocket.control.importing.engines import read_engines
from nearsocket.model.errors import UsageError
from tests.importing.inspects import IMAGE, SGLANG, docker, host, snapshot


def test_the_file_is_one_that_a_fleet_reads_and_every_replica_is_observed(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(write.to_yaml([read_engines(host(docker(SGLANG)))], {}))
    (replica,) = yaml.safe_load(path.read_text())["hosts"][0]["replicas"]
    assert replica["adopt"] == "observe"
    assert fleet.read(path).targets[0].settings is not None


def test_the_command_reads_a_saved_snapshot_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, out = tmp_path / "gpu1.snapshot.json", tmp_path / "fleet.yaml"
    saved.write_text(snapshot(docker(SGLANG)).to_json())
    assert cli.main(["import", str(saved), "--output", str(out), "--json"], standalone_mode=False) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "nearsocket.import/1"
    assert said["hosts"][0]["replicas"][0]["name"] == "glm-main"
    assert out.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    before = out.read_text()
    with pytest.raises(UsageError, match="expected a new file"):
        cli.main(["import", str(saved), "--output", str(out)], standalone_mode=False)
    assert out.read_text() == before


def test_a_lost_engine_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "gpu1.snapshot.json"
    saved.write_text(snapshot(docker(SGLANG), image={**IMAGE, "RepoDigests": []}).to_json())
    assert cli.main(["import", str(saved)], standalone_mode=False) == 2
    assert "No engine was found" in capsys.readouterr().out
