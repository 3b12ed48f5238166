"""The JSON schemas under docs/schemas hold for what the commands really write, and for nothing less."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from nearsocket.control import checks, snapshots
from nearsocket.control.audit import Manner, audit
from nearsocket.control.targets import resolve
from nearsocket.model.report import Report
from nearsocket.model.snapshot import SnapshotError, from_json
from nearsocket.report import json as report_json
from nearsocket.report import jsonl
from tests.explain.test_cases import FOLDER as CASES
from tests.explain.test_cases import judged
from tests.report.scenarios import SCENARIOS

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "schemas"
SCHEMAS = {path.name.removesuffix(".schema.json"): json.loads(path.read_text()) for path in FOLDER.glob("*.schema.json")}
SNAPSHOTS = sorted([*(ROOT / "tests/data/hosts").glob("*.snapshot.json"), *(ROOT / "tests/data/real").glob("*.snapshot.json")])
REGISTRY: Registry[Any] = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in SCHEMAS.values())


def faults(schema: str, value: Any) -> list[str]:
    """What is wrong with the value, a line a fault."""
    validator = Draft202012Validator(SCHEMAS[schema], registry=REGISTRY)
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(value)]


def audited(path: Path) -> Report:
    """The audit of that snapshot with every check of the project."""
    return audit(resolve([str(path)]).targets, Manner(checks=checks.load([ROOT / "checks"])))


def poorer(value: Any) -> Iterator[Any]:
    """The value with one key left out, for each key of its first objects; of open maps nothing is left out."""
    for key, inner in value.items():
        if key in ("by_node", "env", "transports", "affinity", "sources", "program", "privilege", "facts"):
            continue
        less = copy.copy(value)
        del less[key]
        yield less
        deeper = (
            inner
            if isinstance(inner, dict)
            else inner[0]
            if isinstance(inner, list) and inner and isinstance(inner[0], dict)
            else {}
        )
        for smaller in poorer(deeper):
            yield {**value, key: smaller if isinstance(inner, dict) else [smaller, *inner[1:]]}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.name.removesuffix(".snapshot.json"))
def test_an_audit_of_every_snapshot_is_what_the_schemas_say(path: Path) -> None:
    made = audited(path)
    assert faults("snapshot-1", json.loads(path.read_text())) == []
    assert faults("snapshot-1", json.loads(snapshots.from_file(path).to_json())) == []
    assert faults("report-1", json.loads(report_json.render(made))) == []
    assert [fault for line in jsonl.render(made).splitlines() for fault in faults("line-1", json.loads(line))] == []


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"hostile"}))
def test_every_scenario_is_what_the_schemas_say(name: str) -> None:
    made = SCENARIOS[name]()
    assert faults("report-1", json.loads(report_json.render(made))) == []
    assert [fault for line in jsonl.render(made).splitlines() for fault in faults("line-1", json.loads(line))] == []


def test_explain_of_every_case_is_what_the_schema_says() -> None:
    names = sorted(path.name.removesuffix(".expected.json") for path in CASES.glob("*.expected.json"))
    args = {name: json.loads((CASES / f"{name}.expected.json").read_text())["args"] for name in names}
    found = {name: faults("explain-1", judged(*args[name], str(CASES / f"{name}.txt"))[1]) for name in names}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_a_report_that_lacks_a_key_is_refused_wherever_it_lacks_it() -> None:
    whole = json.loads(report_json.render(audited(ROOT / "tests/data/hosts/two-socket-far.snapshot.json")))
    less = list(poorer(whole))
    assert len(less) > 60
    assert [value for value in less if not faults("report-1", value)] == []


@pytest.mark.parametrize(
    ("schema", "change"),
    [
        ("report-1", {"exit_code": 64}),
        ("report-1", {"status": "FAIL"}),
        ("report-1", {"schema": "nearsocket.report/2"}),
        ("report-1", {"more": 1}),
    ],
)
def test_a_report_with_another_value_is_refused(schema: str, change: dict[str, Any]) -> None:
    whole = json.loads(report_json.render(SCENARIOS["healthy"]()))
    assert faults(schema, whole) == []
    assert faults(schema, {**whole, **change}) != []


@pytest.mark.parametrize(
    ("schema", "said", "hint"),
    [
        ("nearsocket.snapshot/0", "an older one", "take a new snapshot: nearsocket audit HOST --save DIR"),
        ("nearsocket.snapshot/2", "a newer one", "install the version of nearsocket that took it"),
        ("nearsocket.report/1", "no snapshot", "name the snapshot that it was made from (audit --save DIR)"),
        ("something else", "no snapshot", "name a file that nearsocket audit --save DIR wrote"),
    ],
)
def test_a_snapshot_of_another_version_is_refused_with_what_to_do(schema: str, said: str, hint: str) -> None:
    whole = json.loads(SNAPSHOTS[0].read_text()) | {"schema": schema}
    with pytest.raises(SnapshotError) as refused:
        from_json(json.dumps(whole))
    assert said in refused.value.message
    assert refused.value.hint == hint
