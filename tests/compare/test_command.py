"""`nearsocket compare`: over real and made snapshots, in both forms, with its codes and its refusals in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_schemas import faults

ROOT = Path(__file__).parent.parent.parent
HOSTS, REAL = ROOT / "tests/data/hosts", ROOT / "tests/data/real"
BOUND, FAR = HOSTS / "two-socket-bound.snapshot.json", HOSTS / "two-socket-far.snapshot.json"


def run(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a shell starts it."""
    own = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    call = [sys.executable, "-m", "nearsocket", "compare", *map(str, words)]
    return subprocess.run(call, capture_output=True, text=True, env=own, cwd=cwd, check=False, timeout=60)


def as_json(*words: object) -> tuple[int, dict[str, Any]]:
    done = run(*words, "--json")
    value: dict[str, Any] = json.loads(done.stdout)
    assert faults("compare-1", value) == []
    assert done.returncode == value["exit_code"]
    return done.returncode, value


def test_a_bound_host_that_went_far_is_code_2_with_the_placement_first() -> None:
    code, value = as_json(BOUND, FAR)
    assert code == 2
    changes = value["hosts"][0]["changes"]
    assert {one["id"] for one in changes if one["grade"] == "fail"} >= {"nccl.buffer-placement"}
    assert changes[0]["grade"] == "fail"
    done = run(BOUND, FAR)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.index("nccl.buffer-placement") < done.stdout.index("memory.near-free")
    assert done.stdout.endswith("exit code 2: a regression\n")


def test_the_way_back_is_a_gain() -> None:
    code, value = as_json(FAR, BOUND)
    assert code == 0
    gains = {one["id"] for one in value["hosts"][0]["changes"] if one["grade"] == "better"}
    assert {"nccl.buffer-placement", "nccl.placement-enforced"} <= gains


@pytest.mark.parametrize("path", sorted(REAL.glob("*.json")), ids=lambda path: path.name.partition(".")[0])
def test_a_real_snapshot_compared_with_itself_shows_nothing(path: Path) -> None:
    code, value = as_json(path, path)
    assert (code, value["hosts"][0]["changes"]) == (0, [])


def test_two_moments_of_one_real_host_differ_in_what_was_changed_alone() -> None:
    """The same machine with peer access off and on, minutes apart: free memory, cache and process numbers moved too."""
    code, value = as_json(REAL / "shm-cumem-off.snapshot.json", REAL / "p2p-cumem-off.snapshot.json")
    assert code == 0
    assert {(one["section"], one["id"] or one["what"]) for one in value["hosts"][0]["changes"]} == {
        ("placement", "nccl.buffer-placement"),
        ("placement", "nccl.placement-enforced"),
        ("placement", "nccl.shm-size"),
        ("parameters", "NCCL_P2P_DISABLE"),
        ("parameters", "NCCL_DEBUG_FILE"),
    }


def test_folders_are_compared_host_by_host_by_name(tmp_path: Path) -> None:
    for side, names in (("before", ("two-socket-bound", "no-gpu")), ("after", ("two-socket-far", "one-socket"))):
        (tmp_path / side).mkdir()
        for name in names:
            shutil.copy(HOSTS / f"{name}.snapshot.json", tmp_path / side)
    hosts = as_json(tmp_path / "before", tmp_path / "after")[1]["hosts"]
    assert all((one["before"] is None) != (one["after"] is None) or one["changes"] is not None for one in hosts)
    assert any(one["exit_code"] == 2 for one in hosts)


def probe(path: Path, *rounds: float) -> Path:
    size = {
        "size_bytes": 1 << 20,
        "median_us": rounds[0],
        "p99_us": rounds[-1],
        "bus_gb_s": 1.0,
        "rounds_us": list(rounds),
        "wrong_elements": 0,
    }
    one = {"host": "gpu1", "subject": "a", "measured": [{"name": "as configured", "sizes": [size]}]}
    path.write_text(json.dumps({"schema": "nearsocket.probe/1", "probes": [one], "status": "pass", "exit_code": 0}))
    return path


def test_probes_beside_the_snapshots_are_figures(tmp_path: Path) -> None:
    fast, slow = probe(tmp_path / "fast", 100.0, 101.0), probe(tmp_path / "slow", 240.0, 241.0)
    code, value = as_json(BOUND, BOUND, "--probe", fast, slow)
    assert code == 2
    assert [one["section"] for one in value["hosts"][0]["changes"]] == ["figures"]
    assert as_json(BOUND, BOUND, "--probe", fast, fast)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((BOUND,), "Missing argument 'AFTER'"),
        ((BOUND, "not-there.snapshot.json"), "found no such file"),
        ((BOUND, FAR, "--probe", FAR, FAR), "expected schema nearsocket.probe/1"),
        ((BOUND, ROOT / "README.md"), "found another file"),
        ((BOUND, FAR, "--near", "7"), "expected nodes of"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(words: tuple[object, ...], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (64, ""), done
    assert said in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr
