"""What a rollout did, host by host and replica by replica: what the renderers take. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.errors import EXIT_CLEAN, EXIT_FAILURES
from nearsocket.model.finding import Status
from nearsocket.model.plan.report import EXIT_PENDING


class End(str, enum.Enum):
    """What became of a host. CURRENT: nothing to do, and proven; EARLIER: proven by the rollout that is resumed; PENDING: changes
    would be made (`--check`); FAILED: not as it should be and not taken back; INTERRUPTED: work there goes on by itself."""

    VERIFIED = "verified"
    CURRENT = "current"
    EARLIER = "verified-earlier"
    PENDING = "pending"
    SKIPPED = "skipped"
    UNTOUCHED = "not-touched"
    INTERRUPTED = "interrupted"
    ROLLED_BACK = "rolled-back"
    FAILED = "failed"


#: Ends of hosts where something went wrong.
WRONG = (End.FAILED, End.ROLLED_BACK)


@dataclass(frozen=True)
class Proof:
    """A replica's verdict in short: the line (`near by force: ...`), its status, and when its start began (ISO 8601)."""

    line: str
    status: Status
    started_at: Optional[str] = None


@dataclass(frozen=True)
class ReplicaReport:
    """One replica. `did`: `restarted`, `started`, or None where it ran on; `took_s`: from its stop to its proof."""

    name: str
    did: Optional[str] = None
    took_s: Optional[float] = None
    before: Optional[Proof] = None
    after: Optional[Proof] = None


@dataclass(frozen=True)
class HostReport:
    """One host. `batch` from 1. `before`, `after`: what was in force (a generation's number, a version); `wanted`: what it was to
    come to. `took_s`: phase to seconds. `reason`, `hint`: why it is not as it should be, and what to do."""

    name: str
    end: End
    batch: int = 0
    before: Optional[str] = None
    after: Optional[str] = None
    wanted: Optional[str] = None
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    replicas: tuple[ReplicaReport, ...] = ()
    took_s: Mapping[str, float] = field(default_factory=dict)
    reason: Optional[str] = None
    hint: Optional[str] = None


@dataclass(frozen=True)
class RolloutReport:
    """A whole rollout. `id` is None where nothing was begun; `resumed`: it went on with an earlier one of that id."""

    job: str
    by: str
    started_at: str
    hosts: tuple[HostReport, ...]
    exit_code: int
    id: Optional[str] = None
    resumed: bool = False
    check: bool = False
    took_s: float = 0.0


def exit_code(hosts: Iterable[HostReport], check: bool) -> int:
    """0 done or nothing to do; 2 where a host failed, or every one was skipped; 4 with `check` where changes are pending (DESIGN,
    exit codes)."""
    ends = {host.end for host in hosts}
    if ends & set(WRONG) or ends == {End.SKIPPED}:
        return EXIT_FAILURES
    return EXIT_PENDING if check and End.PENDING in ends else EXIT_CLEAN
