"""What a rollout asks of a replica's verdict; the unit's own policy does not count here, for a whole fleet hangs on it. Pure."""

from __future__ import annotations

from typing import Optional

from nearsocket.model.errors import EXIT_FAILURES, EXIT_UNKNOWN
from nearsocket.model.exitcode import code_of
from nearsocket.model.finding import Finding
from nearsocket.model.rollout.report import Proof
from nearsocket.model.text import one_line
from nearsocket.model.verdict import Verdict


def problem(verdict: Verdict, accept_unknown: bool) -> Optional[str]:
    """Why that is not good enough: a failure, or (unless `accept_unknown`) a core finding that is unknown; None where it is."""
    for code in (EXIT_FAILURES, *(() if accept_unknown else (EXIT_UNKNOWN,))):
        found = [finding for finding in verdict.findings if code_of(finding) == code]
        if found:
            return one_line(f"replica {verdict.replica}: {told(found[0])}", 400)
    return None


def told(finding: Finding) -> str:
    """`nccl.buffer-placement fail: ...`."""
    return f"{finding.id} {finding.status.value}: {finding.summary}"


def brief(verdict: Verdict) -> Proof:
    """The verdict in short."""
    return Proof(verdict.line, verdict.status, verdict.started_at)
