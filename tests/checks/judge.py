"""Runs one of the project's checks on a host: `judge("nccl.buffer-placement", host)`."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from nearsocket.model.check import Check
from nearsocket.model.finding import Finding, Status
from nearsocket.model.host import Host

FOLDER = Path(__file__).parents[2] / "checks"


@functools.cache
def checks() -> dict[str, Check]:
    """Every check of the nccl and engine files, by id."""
    found: dict[str, Check] = {}
    for path in [*sorted(FOLDER.glob("nccl*.py")), FOLDER / "engine.py"]:
        spec = importlib.util.spec_from_file_location(f"nearsocket_checks.{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for value in vars(module).values():
            mark = getattr(value, "nearsocket_check", None)
            if mark is not None:
                found[mark.id] = mark
    return found


def judge(id: str, host: Host) -> tuple[Finding, ...]:
    """The findings of that check; each obeys what holds for all: one line, evidence on a pass, a remedy on warn and fail."""
    findings = checks()[id].run(host)
    for finding in findings:
        for text in (finding.subject, finding.summary, *(part for item in finding.evidence for part in (item.source, item.text))):
            assert text and text.isprintable(), f"not one printable line: {text!r}"
        assert not finding.summary.startswith("the check itself failed"), finding.summary
        assert finding.status in (Status.PASS, Status.NOT_APPLICABLE) or finding.remedy or finding.status is Status.UNKNOWN
        assert finding.status is not Status.NOT_APPLICABLE or finding.evidence, finding.summary
    return findings


def one(id: str, host: Host) -> Finding:
    """The check's only finding."""
    (finding,) = judge(id, host)
    return finding
