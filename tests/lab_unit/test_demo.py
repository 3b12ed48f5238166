"""The demo's story and the audit's report, without a machine: what is printed, what is expected, what is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab import audit as lab_audit
from lab import demo, site
from lab.audit import Audit, Verdict, audit
from lab.errors import LabError
from lab.state import LabRecord, MachineRecord


def judged(placement: str, enforced: str) -> Audit:
    return Audit(0, (Verdict(demo.PLACEMENT, placement, "so many bytes"), Verdict(demo.ENFORCED, enforced, "by something")))


RECORD = LabRecord("demo", "gpus", "full", "x", "tcg", (MachineRecord("demo", 2222, "uuid"),), ready=True)
CONVERGED = site.Ran(0, "    [demo] 30 changes made, generation none to 1\n    switch generation 1", 1)
NOTHING = site.Ran(0, "    [demo] generation 1 is in force and as it should be; 0 changes", 1)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the story runs on the machine, deploys included."""
    ran: list[str] = []

    def run(_lab: str, _machine: str, script: str, **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(script)
        return subprocess.CompletedProcess([], 0, "said\n", "")

    monkeypatch.setattr(demo.ssh, "run", run)
    monkeypatch.setattr(demo.site, "write_fleet", lambda *_: tmp_path / "fleet.yaml")
    deployed(monkeypatch, ran, (CONVERGED, 3), (NOTHING, 1))
    return ran


def deployed(monkeypatch: pytest.MonkeyPatch, ran: list[str], *results: tuple[site.Ran, int]) -> None:
    turn = iter(results)

    def counted(*_: Any) -> tuple[site.Ran, int]:
        ran.append("site.py")
        return next(turn)

    monkeypatch.setattr(demo.site, "counted", counted)


def audits(monkeypatch: pytest.MonkeyPatch, *results: Audit) -> None:
    turn = iter(results)
    monkeypatch.setattr(demo, "audit", lambda *_: next(turn))


def test_the_story_prints_fail_and_then_pass_after_the_deploy(
    scripts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audits(monkeypatch, judged("fail", "warn"), judged("pass", "pass"))
    demo.story(RECORD, "image")
    said = capsys.readouterr().out
    order = [
        "nccl.buffer-placement fail",
        "deploys/site.py -y",
        "nccl.buffer-placement pass",
        "nccl.placement-enforced pass",
        "; 0 changes",
        "asked for 1 command,",
    ]
    places = [said.index(words) for words in order]
    assert places == sorted(places)
    kept = [script for script in scripts if script in (demo.NAIVE, "standin-engine stop 2>&1", "site.py")]
    assert kept == [demo.NAIVE, "standin-engine stop 2>&1", "site.py", "site.py"]


def test_a_naive_start_that_is_near_by_luck_is_drawn_again(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    audits(monkeypatch, judged("pass", "warn"), judged("fail", "warn"), judged("pass", "pass"))
    demo.story(RECORD, "image")
    assert scripts.count(demo.NAIVE) == 2


def test_an_audit_without_an_answer_in_time_is_repeated(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    audits(monkeypatch, judged("unknown", "warn"), judged("fail", "warn"), judged("pass", "unknown"), judged("pass", "pass"))
    demo.story(RECORD, "image")
    assert scripts.count(demo.NAIVE) == 1


def test_a_fault_that_never_shows_is_no_success(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    audits(monkeypatch, *[judged("pass", "warn")] * demo.DRAWS)
    with pytest.raises(LabError, match=r"expected nccl.buffer-placement fail, found pass"):
        demo.story(RECORD, "image")


@pytest.mark.parametrize("last", [judged("fail", "pass"), judged("pass", "warn"), judged("unknown", "pass")])
def test_a_cure_that_does_not_hold_is_no_success(scripts: list[str], monkeypatch: pytest.MonkeyPatch, last: Audit) -> None:
    audits(monkeypatch, judged("fail", "warn"), *[last] * demo.TRIES)
    with pytest.raises(LabError, match="expected nccl"):
        demo.story(RECORD, "image")


@pytest.mark.parametrize(
    "second", [(CONVERGED, 2), (NOTHING, 2), (site.Ran(0, "[demo] 10 changes made", 1), 1), (site.Ran(1, "refused", 1), 1)]
)
def test_a_second_run_that_does_something_is_no_success(
    scripts: list[str], monkeypatch: pytest.MonkeyPatch, second: tuple[site.Ran, int]
) -> None:
    audits(monkeypatch, judged("fail", "warn"), judged("pass", "pass"))
    deployed(monkeypatch, scripts, (CONVERGED, 2), second)
    with pytest.raises(LabError, match="expected"):
        demo.story(RECORD, "image")


def test_the_worst_finding_of_an_id_counts() -> None:
    found = Audit(2, (Verdict("x", "pass", "a"), Verdict("x", "fail", "b"), Verdict("x", "unknown", "c")))
    assert found.of("x").summary == "b"
    with pytest.raises(LabError, match="expected the audit to report y"):
        found.of("y")


def answer(monkeypatch: pytest.MonkeyPatch, stdout: str, stderr: str = "", code: int = 0) -> list[list[str]]:
    asked: list[list[str]] = []

    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, code, stdout, stderr)

    monkeypatch.setattr(lab_audit.subprocess, "run", run)
    return asked


def test_the_audit_is_the_command_that_a_person_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    report = {"hosts": [{"findings": [{"id": "x", "status": "fail", "summary": "a\x1b[31m"}], "topology": None}]}
    asked = answer(monkeypatch, json.dumps(report), code=2)
    assert audit("lab") == Audit(2, (Verdict("x", "fail", "a [31m"),))
    assert asked[0][1:] == ["-m", "nearsocket", "audit", "--near", "0", "--json", "--limit", "lab", str(lab_audit.inventory.path())]


@pytest.mark.parametrize("stdout", ["", "{}", '{"hosts": []}', '{"hosts": [{}]}', "[]", "null"])
def test_an_audit_without_a_report_says_what_it_said(monkeypatch: pytest.MonkeyPatch, stdout: str) -> None:
    answer(monkeypatch, stdout, "nearsocket: no such host\n  look again\n", 64)
    with pytest.raises(LabError, match="nearsocket: no such host"):
        audit("lab")
