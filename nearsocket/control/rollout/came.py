"""What came of a rollout's hosts so far, and the report on it: at its end, and where it is interrupted."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nearsocket.control.rollout import earlier
from nearsocket.control.rollout.look import Looked
from nearsocket.control.target import Target
from nearsocket.model.rollout.report import WRONG, End, HostReport, ReplicaReport, RolloutReport, exit_code

if TYPE_CHECKING:
    from nearsocket.control.rollout.run import Manner


@dataclass
class Came:
    """What came of the hosts so far, for who is interrupted too: reports by name, in which phase the others are, and a note on
    each that was taken over from another client."""

    reports: dict[str, HostReport] = field(default_factory=dict)
    stages: dict[str, str] = field(default_factory=dict)
    looked: dict[str, Looked] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None
    began: float = field(default_factory=time.monotonic)
    started_at: str = field(default_factory=lambda: datetime.now(UTC).strftime(earlier.FORMAT))


def report(job: str, targets: Sequence[Target], manner: Manner, came: Came, code: int | None = None) -> RolloutReport:
    """All that is known now: hosts without a report of their own were not touched, or are at work by themselves."""
    hosts = tuple(_noted(came.reports.get(target.name) or _without(target.name, came), came) for target in targets)
    failed = code if code is not None else exit_code(hosts, manner.check)
    took_s = round(time.monotonic() - came.began, 1)
    return RolloutReport(job, manner.by, came.started_at, hosts, failed, came.id, manner.resume, manner.check, took_s)


def _noted(host: HostReport, came: Came) -> HostReport:
    note = came.taken.get(host.name)
    return dataclasses.replace(host, notes=(note, *host.notes)) if note else host


def with_look(host: HostReport, looked: Looked) -> HostReport:
    """With what was noted before anything was changed anywhere: what could not be tried then is not tried again at its turn."""
    noted = looked.ready.notes if looked.ready else ()
    return dataclasses.replace(host, notes=tuple(dict.fromkeys((*noted, *host.notes))))


def _without(name: str, came: Came) -> HostReport:
    looked = came.looked.get(name)
    stage = came.stages.get(name)
    if stage in ("apply", "roll back"):
        told = f"the connection was given up in the phase {stage!r}; what was begun there ends by itself"
        return HostReport(name, End.INTERRUPTED, reason=told)
    if stage is not None:
        return HostReport(name, End.INTERRUPTED, reason=f"given up in the phase {stage!r}")
    wrong = next((report.name for report in came.reports.values() if report.end in WRONG), None)
    untouched = known(looked) if looked else HostReport(name, End.UNTOUCHED)
    return dataclasses.replace(untouched, end=End.UNTOUCHED, reason=f"not touched: {wrong} failed" if wrong else "not touched")


def known(looked: Looked) -> HostReport:
    """What the look alone tells of a host."""
    ready = looked.ready
    if ready is None:
        return HostReport(looked.name, End.FAILED, reason=looked.reason, hint=looked.hint)
    replicas = tuple(ReplicaReport(name, before=ready.before.get(name)) for name in ready.replicas)
    end = End.PENDING if ready.pending else End.CURRENT
    return HostReport(
        looked.name, end, 0, ready.current, ready.current, ready.wanted, ready.changes, ready.notes, replicas=replicas
    )
