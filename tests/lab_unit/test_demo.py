"""The demo's story and the audit's report, without a machine: what is printed, what is expected, what is refused."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from lab import audit as lab_audit
from lab import demo
from lab.audit import Audit, Verdict, audit
from lab.errors import LabError


def judged(placement: str, enforced: str) -> Audit:
    return Audit(0, (Verdict(demo.PLACEMENT, placement, "so many bytes"), Verdict(demo.ENFORCED, enforced, "by something")))


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the story runs on the machine."""
    ran: list[str] = []

    def run(_lab: str, _machine: str, script: str, **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(script)
        return subprocess.CompletedProcess([], 0, "said\n", "")

    monkeypatch.setattr(demo.ssh, "run", run)
    return ran


def audits(monkeypatch: pytest.MonkeyPatch, *results: Audit) -> None:
    turn = iter(results)
    monkeypatch.setattr(demo, "audit", lambda _name: next(turn))


def test_the_story_prints_fail_and_then_pass(
    scripts: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audits(monkeypatch, judged("fail", "warn"), judged("pass", "pass"))
    demo.story()
    said = capsys.readouterr().out
    assert (
        said.index("nccl.buffer-placement fail")
        < said.index("nccl.buffer-placement pass")
        < said.index("nccl.placement-enforced pass")
    )
    assert [script for script in scripts if "membind" in script] == ["lab-ranks start -p CPUAffinity=0-1 -- numactl --membind=0"]


def test_a_naive_start_that_is_near_by_luck_is_drawn_again(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    audits(monkeypatch, judged("pass", "warn"), judged("fail", "warn"), judged("pass", "pass"))
    demo.story()
    assert scripts.count("lab-ranks start -p CPUAffinity=0-1") == 2


def test_a_fault_that_never_shows_is_no_success(scripts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    audits(monkeypatch, *[judged("pass", "warn")] * demo.DRAWS)
    with pytest.raises(LabError, match=r"expected nccl.buffer-placement fail, found pass"):
        demo.story()


@pytest.mark.parametrize("last", [judged("fail", "pass"), judged("pass", "warn"), judged("unknown", "pass")])
def test_a_cure_that_does_not_hold_is_no_success(scripts: list[str], monkeypatch: pytest.MonkeyPatch, last: Audit) -> None:
    audits(monkeypatch, judged("fail", "warn"), last)
    with pytest.raises(LabError, match="expected nccl"):
        demo.story()


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
