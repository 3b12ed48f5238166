"""Audits of lab machines as rows of a table: the worst status of each finding, and what differs between two audits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from lab.audit import audit
from nearsocket.model.finding import Status

#: From the worst to the best.
ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.NOT_APPLICABLE)
#: An emulated machine beside others is some ten times slower than a server: its sources get that much more time.
PATIENT_S = 240


@dataclass(frozen=True)
class Judged:
    """The worst status of each finding, and what it says."""

    statuses: Mapping[str, str]
    summaries: Mapping[str, str]

    def of(self, *ids: str) -> tuple[str, ...]:
        """The statuses of these findings."""
        return tuple(self.statuses[id] for id in ids)

    def said(self, *ids: str) -> str:
        """What these findings say, for a test that fails."""
        return "; ".join(f"{id} {self.statuses[id]}: {self.summaries[id]}" for id in ids)

    def changes(self, after: Judged) -> dict[str, str]:
        """The findings of a later audit whose status is not the one here."""
        return {id: status for id, status in after.statuses.items() if self.statuses.get(id) != status}


def judged(machine: str, timeout_s: int = PATIENT_S) -> Judged:
    """One audit of a machine of the lab over SSH, as root."""
    statuses: dict[str, str] = {}
    summaries: dict[str, str] = {}
    for one in audit(machine, None, "--timeout", str(timeout_s)).verdicts:
        if one.id not in statuses or _rank(one.status) < _rank(statuses[one.id]):
            statuses[one.id], summaries[one.id] = one.status, one.summary
    return Judged(statuses, summaries)


def in_time(machine: str, timeout_s: int = 300) -> Judged:
    """The first of six audits in which the sources that placement rests on answered. The test fails where none is."""
    late: list[str] = []
    for _attempt in range(6):
        found = judged(machine, timeout_s)
        unanswered = re.split(r"[:,]? ", found.summaries["host.reachable"])
        late = [name for name in ("processes", "nccl.logs") if name in unanswered]
        if not late and len(found.statuses) > 1:
            return found
    pytest.fail(f"the machine was too slow six times: {', '.join(late)}")


def _rank(status: str) -> int:
    return ORDER.index(Status(status))
