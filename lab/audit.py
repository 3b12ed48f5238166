"""The audit as a person runs it: the command, over SSH, its JSON read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

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


#: The variable that makes the inventory name another user of the guest than root.
USER_VARIABLE = "NEARSOCKET_LAB_USER"


def command(machine: str, near: str | None, *options: str) -> list[str]:
    """The command line that audits one machine of the lab."""
    told = ["--near", near] if near is not None else []
    return [sys.executable, "-m", "nearsocket", "audit", *told, *options, "--limit", machine, str(inventory.path())]


def audit(machine: str, near: str | None = "0", *options: str, user: str = "root") -> Audit:
    """Audit one machine as one of its users; LabError where the command gives no report."""
    code, host = _host(command(machine, near, "--json", *options), user)
    return Audit(code, tuple(Verdict(one["id"], one["status"], clean(one["summary"])) for one in host["findings"]))


def topology(machine: str) -> dict[str, Any]:
    """What the audit's report says of a machine's sockets and nodes, as in nearsocket.report/1."""
    told: dict[str, Any] = _host(command(machine, None, "--json"), "root")[1]["topology"]
    return told


def _host(argv: list[str], user: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the one host of a report."""
    done = subprocess.run(
        argv,
        env={**os.environ, USER_VARIABLE: user},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    try:
        (host,) = json.loads(done.stdout)["hosts"]
        return done.returncode, {"findings": host["findings"], "topology": host["topology"]}
    except (ValueError, LookupError, TypeError):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise LabError(f"expected a report of nearsocket audit, found: {clean(said[0]) if said else 'nothing'}") from None
