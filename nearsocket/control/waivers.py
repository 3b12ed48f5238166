"""Waivers: findings that someone answers for until a day. Reported, not counted; one that is over counts again. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase

from nearsocket.model.check import Afterwards
from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.model.report import Maintenance

#: The finding that a waiver without anything to waive becomes.
UNUSED_ID = "host.waiver-unused"
UNUSED = Afterwards(
    UNUSED_ID,
    "Every waiver of the inventory waives something, and has not ended.",
    """Judged once all hosts are, over the inventory's waivers; a waiver whose hosts were not audited, or whose check did not run on
each of them, is not judged. It cannot be waived itself.

- warn: nothing fails, warns or is unknown where the waiver holds, so that it hides what comes next; or its last day is over,
  and its findings count again.
- pass, fail, unknown and not-applicable cannot occur: a waiver that is needed and in force shows on the finding that it waives.""",
    "host",
)
_WAIVABLE = (Status.FAIL, Status.WARN, Status.UNKNOWN)


@dataclass(frozen=True)
class Waiver:
    """A waiver of an inventory: the check's id, host patterns (`*`, `?`, `[…]`, parted by commas), why, who, the last day."""

    id: str
    host: str
    reason: str
    owner: str
    expires: date

    def names(self, host: str) -> bool:
        """Whether it is about that host."""
        return any(fnmatchcase(host, pattern.strip()) for pattern in self.host.split(","))

    def covers(self, host: str, today: date) -> bool:
        """Whether it holds for that host on that day; the day it expires is its last."""
        return self.names(host) and today <= self.expires


def apply(waivers: Sequence[Waiver], host: str, findings: Iterable[Finding], today: date) -> tuple[Finding, ...]:
    """The findings, those that are waived marked so. The status stays; a pass is never waived."""
    return tuple(_marked(finding, waivers, host, today) for finding in findings)


def _marked(finding: Finding, waivers: Sequence[Waiver], host: str, today: date) -> Finding:
    if finding.status not in _WAIVABLE:
        return finding
    for waiver in waivers:
        if waiver.id == finding.id and waiver.covers(host, today):
            return dataclasses.replace(finding, waived=Waived(waiver.reason, waiver.owner, waiver.expires.isoformat()))
    return finding


def idle(waivers: Sequence[Waiver], findings: Mapping[str, Sequence[Finding]], today: date) -> list[Finding]:
    """A warning for each waiver that waives nothing: unused (nothing is wrong there) or over (its findings count again).

    `findings` maps each audited host's name to its findings. A waiver says nothing here where its hosts were not audited, or
    where its check did not run on each of them. The subject of a warning is the first host that the waiver names.
    """
    warnings = []
    for waiver in waivers:
        hosts = [name for name in findings if waiver.names(name)]
        looked_at = [[f for f in findings[name] if f.id == waiver.id] for name in hosts]
        if not hosts or not all(looked_at):
            continue
        needed = any(finding.status in _WAIVABLE for found in looked_at for finding in found)
        over = today > waiver.expires
        if over or not needed:
            warnings.append(_idle(waiver, hosts[0], needed, over))
    return warnings


def _idle(waiver: Waiver, host: str, needed: bool, over: bool) -> Finding:
    expires = waiver.expires.isoformat()
    why = f"ended on {expires}" if over else "is unused: nothing fails, warns or is unknown there"
    then = ("; its findings count again" if needed else "; it is not needed any more") if over else ""
    summary = f"the waiver of {waiver.id} for {waiver.host} ({waiver.owner}: {waiver.reason}) {why}{then}"
    remedy = "cure the finding, or agree on a new date in the inventory" if needed else "take the waiver out of the inventory"
    evidence = (Evidence("inventory", f"id: {waiver.id}, host: {waiver.host}, expires: {expires}"),)
    return Finding(UNUSED_ID, Status.WARN, host, summary, evidence, remedy)


def in_force(maintenance: Maintenance | None, today: date) -> Maintenance | None:
    """The maintenance, where it is not over; the day `until` is its last."""
    if maintenance is None or today > date.fromisoformat(maintenance.until):
        return None
    return maintenance
