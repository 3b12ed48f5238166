"""Every text under tests/cases/explain comes out as the file beside it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nearsocket.commands.explain import explain
from nearsocket.model.exitcode import SEVERITY
from nearsocket.model.finding import Status

FOLDER = Path(__file__).parent.parent / "cases" / "explain"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in FOLDER.glob("*.expected.json"))


def differences(want: Any, got: Any, where: str = "facts") -> list[str]:
    """What an expected subset misses: an object's given keys, a list of objects' given entries, any other list as a set."""
    if isinstance(want, dict) and want:
        if not isinstance(got, dict):
            return [f"{where}: expected an object, got {got!r}"]
        return [d for key, value in want.items() for d in (differences(value, got.get(key, "missing"), f"{where}.{key}"))]
    if isinstance(want, list) and want and isinstance(want[0], dict):
        return [f"{where}: no entry like {entry}" for entry in want if not any(not differences(entry, g) for g in got)]
    if isinstance(want, list) and isinstance(got, list):
        return [] if sorted(map(str, want)) == sorted(map(str, got)) else [f"{where}: expected {want}, got {got}"]
    return [] if want == got else [f"{where}: expected {want!r}, got {got!r}"]


def judged(*args: str, stdin: bytes | None = None) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the JSON of one call."""
    run = CliRunner().invoke(explain, ["--json", *args], input=stdin, standalone_mode=False)
    assert run.exception is None, run.exception
    return run.return_value, json.loads(run.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_case_comes_out_as_its_expectation_says(name: str) -> None:
    want = json.loads((FOLDER / f"{name}.expected.json").read_text())
    code, [got] = judged(*want["args"], str(FOLDER / f"{name}.txt"))
    assert code == want["exit"]
    assert got["kind"] == want["kind"]
    if want["facts"]:
        assert differences(want["facts"], got["facts"]) == []
    worst: dict[str, str] = {}
    for found in got["findings"]:
        statuses = [Status(word) for word in (worst.get(found["id"], "not-applicable"), found["status"])]
        worst[found["id"]] = max(statuses, key=SEVERITY.index).value
    assert {id: worst.get(id) for id in want["findings"]} == want["findings"]


@pytest.mark.parametrize(
    "name", [n for n in NAMES if any(w in n for w in ("fused", "cut-row", "missing-row", "missing-line", "cut-in-a-buffer"))]
)
def test_what_cannot_be_read_with_certainty_has_no_facts_and_names_the_line(name: str) -> None:
    args = json.loads((FOLDER / f"{name}.expected.json").read_text())["args"]
    code, [got] = judged(*args, str(FOLDER / f"{name}.txt"))
    assert (code, got["facts"], got["status"]) == (3, {}, "unknown")
    assert got["reason"].startswith("line ")
    assert got["findings"][0]["summary"] == got["reason"]


@pytest.mark.parametrize("name", NAMES)
def test_every_finding_has_an_id_evidence_where_it_passes_and_a_remedy_where_it_fails(name: str) -> None:
    args = json.loads((FOLDER / f"{name}.expected.json").read_text())["args"]
    _, [got] = judged(*args, str(FOLDER / f"{name}.txt"))
    assert list(got) == ["file", "kind", "status", "reason", "facts", "findings"]
    assert (got["reason"] is None) == (got["status"] == "pass")
    ids = {found["id"] for found in got["findings"]}
    assert "nccl.placement-enforced" not in ids
    assert {"numa_maps": {"nccl.buffer-placement"}, "nccl_log": {"nccl.buffer-placement", "nccl.cumem-in-force"}}.get(
        got["kind"], set()
    ) <= ids
    for found in got["findings"]:
        assert found["evidence"] or found["status"] == "unknown"
        assert (found["remedy"] is None) == (found["status"] in {"pass", "not-applicable"}) or found["status"] == "unknown"
        assert "\n" not in found["summary"]
