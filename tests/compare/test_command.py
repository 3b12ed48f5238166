"""`nearsocket compare`: over real and made snapshots, in both forms, with its codes and its refusals in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nearsocket.control.sides import sides
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
    before = taken(tmp_path / "before", gpu1="gpu1", gone="gone")
    after = taken(tmp_path / "after", gpu1="gpu1", new="new")
    far = {**json.loads(FAR.read_text()), "host": "gpu1"}
    (after / "gpu1.snapshot.json").write_text(json.dumps(far))
    hosts = {one["name"]: one for one in as_json(before, after)[1]["hosts"]}
    assert {name: one["exit_code"] for name, one in hosts.items()} == {"gpu1": 2, "new": 0, "gone": 1}
    assert (hosts["new"]["before"], hosts["gone"]["after"]) == (None, None)


def taken(folder: Path, **hosts: str) -> Path:
    """A folder of snapshots: file name to the host's name inside."""
    folder.mkdir()
    for file, host in hosts.items():
        value = {**json.loads(BOUND.read_text()), "host": host}
        (folder / f"{file}.snapshot.json").write_text(json.dumps(value))
    return folder


def one_line(*words: object) -> str:
    """The refusal's first line; the second is its hint."""
    done = run(*words)
    assert (done.returncode, done.stdout) == (64, ""), done
    assert len(done.stderr.splitlines()) <= 2
    return done.stderr


def test_a_host_that_one_side_has_twice_is_refused_with_both_files(tmp_path: Path) -> None:
    once, twice = taken(tmp_path / "once", gpu1="gpu1"), taken(tmp_path / "twice", gpu1="gpu1", old="gpu1")
    for words in ((once, twice), (twice, once)):
        said = one_line(*words)
        assert "expected each host once, found 'gpu1' in gpu1.snapshot.json and old.snapshot.json" in said
        assert "move one of the two files away" in said


def test_folders_of_one_host_each_go_by_name(tmp_path: Path) -> None:
    one, other = taken(tmp_path / "one", a="gpu1"), taken(tmp_path / "other", a="gpu2")
    code, value = as_json(one, other)
    assert code == 1
    assert [(host["name"], host["before"] is None, host["after"] is None) for host in value["hosts"]] == [
        ("gpu2", True, False),
        ("gpu1", False, True),
    ]
    assert as_json(one, one)[1]["hosts"][0]["changes"] == []
    assert len(as_json(one, other / "a.snapshot.json")[1]["hosts"]) == 2
    fast = probe(tmp_path / "fast", 100.0, 101.0)
    assert "expected one host, the same on each side, found two of different names" in one_line(one, other, "--probe", fast, fast)


def test_two_single_files_are_a_pair_and_a_note_says_that_their_names_differ(tmp_path: Path) -> None:
    both = taken(tmp_path / "both", a="gpu1", b="gpu2")
    code, value = as_json(both / "a.snapshot.json", both / "b.snapshot.json")
    (host,) = value["hosts"]
    assert (code, host["name"], host["notes"]) == (0, "gpu2", ["two hosts of different names: gpu1 before, gpu2 after"])
    assert "two hosts of different names" in run(both / "a.snapshot.json", both / "b.snapshot.json").stdout
    assert as_json(both / "a.snapshot.json", both / "a.snapshot.json")[1]["hosts"][0]["notes"] == []


def test_a_limit_chooses_hosts_by_name_on_both_sides(tmp_path: Path) -> None:
    before = taken(tmp_path / "before", a="gpu1", b="gpu2", c="cpu1")
    after = taken(tmp_path / "after", a="gpu1", b="cpu1")

    def names(*words: object) -> list[str]:
        return [host["name"] for host in as_json(before, after, *words)[1]["hosts"]]

    assert names("--limit", "gpu1") == ["gpu1"]
    assert names("--limit", "gpu*") == ["gpu1", "gpu2"]
    assert names("--limit", "gpu2") == ["gpu2"]  # gone: one side has it
    assert names("--limit", "gpu1", "--limit", "c*") == ["gpu1", "cpu1"]
    said = one_line(before, after, "--limit", "gpu1", "--limit", "gpu9")
    assert "--limit gpu9: expected a host, or a group of the inventory, found none that matches" in said
    assert "hosts: gpu1, gpu2, cpu1\n" in said


def test_a_limit_holds_for_two_single_files_too(tmp_path: Path) -> None:
    both = taken(tmp_path / "both", a="gpu1", b="gpu2")
    pair = both / "a.snapshot.json", both / "b.snapshot.json"
    assert len(as_json(*pair, "--limit", "gpu2")[1]["hosts"]) == 1
    assert "--limit gpu3" in one_line(*pair, "--limit", "gpu3")


def test_a_group_of_an_inventory_chooses_on_the_other_side_by_name(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("hosts: [{name: gpu1, local: true, groups: [fast]}, {name: gpu2, local: true}]")
    before = taken(tmp_path / "before", a="gpu1", b="gpu2")
    earlier, later, pair = sides(str(before), str(fleet), ["fast"])
    assert ([t.name for t in earlier.targets], [t.name for t in later.targets], pair) == (["gpu1"], ["gpu1"], False)
    assert sides("root@gpu1", str(before / "a.snapshot.json"), [])[2]
    assert not sides("root@gpu1", str(before), [])[2]


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
