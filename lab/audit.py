"""The audit as a person runs it: the command, over SSH, its JSON read back."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from lab import inventory
from lab.errors import LabError
from lab.say import clean


@dataclass(frozen=True)
class Verdict:
    """One finding as the report has it."""

    id: str
    status: str
    summary: str


@dataclass(frozen=True)
class Audit:
    """One host's audit: findings and the command's exit code."""

    exit_code: int
    verdicts: tuple[Verdict, ...]

    def of(self, check: str) -> Verdict:
        """The finding of that id, the worst where there are several; LabError where there is none."""
        order = ("fail", "unknown", "warn", "pass", "not-applicable")
        found = sorted((v for v in self.verdicts if v.id == check), key=lambda v: order.index(v.status))
        if not found:
            raise LabError(f"expected the audit to report {check}, found no such finding")
        return found[0]


def command(machine: str, near: str | None, *options: str) -> list[str]:
    """The command line that audits one machine of the lab."""
    told = ["--near", near] if near is not None else []
    return [sys.executable, "-m", "nearsocket", "audit", *told, *options, "--limit", machine, str(inventory.path())]


def audit(machine: str, near: str | None = "0", *options: str) -> Audit:
    """Audit one machine; LabError where the command gives no report."""
    done = subprocess.run(
        command(machine, near, "--json", *options),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    try:
        report = json.loads(done.stdout)
        findings = report["hosts"][0]["findings"]
        return Audit(done.returncode, tuple(Verdict(one["id"], one["status"], clean(one["summary"])) for one in findings))
    except (ValueError, LookupError, TypeError):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise LabError(f"expected a report of nearsocket audit, found: {clean(said[0]) if said else 'nothing'}") from None
