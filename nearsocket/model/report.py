"""The report: what an audit says about its hosts, ready to be rendered. Renderers read this and judge nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Finding, Status
from nearsocket.model.host import Host


@dataclass(frozen=True)
class Maintenance:
    """A host that is being worked on: reported, but out of the exit code until the end of the day `until` (ISO date, UTC)."""

    until: str
    reason: str


@dataclass(frozen=True)
class HostReport:
    """One host's part. `host` is None where nothing could be read; `reason` then says why in one line.

    `status` is the worst counted finding's (waived ones do not count); `taken_at` is the snapshot's (ISO 8601, UTC), or the moment
    of the attempt where there is no snapshot. `maintenance` is None where there is none or where it is over.
    """

    name: str
    status: Status
    taken_at: str
    host: Optional[Host]
    findings: tuple[Finding, ...]
    reason: Optional[str] = None
    maintenance: Optional[Maintenance] = None

    @property
    def reachable(self) -> bool:
        """Whether the host was read."""
        return self.host is not None


@dataclass(frozen=True)
class Report:
    """Every host in the order of the inventory; `status` and `exit_code` are the worst host's, those in maintenance left out."""

    hosts: tuple[HostReport, ...]
    status: Status
    exit_code: int
