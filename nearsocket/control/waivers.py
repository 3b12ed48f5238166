"""Waivers: findings that someone answers for until a day. Reported, not counted; one that is over counts again. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
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
each of them, is judged only where it can never hold. It cannot be waived itself.

- warn: no host of the inventory has the waiver's name, or no check has its id; nothing fails, warns or is unknown where the
  waiver holds, so that it hides what comes next; or its last day is over, and its findings count again.
- pass, fail, unknown and not-applicable cannot occur: a waiver that is needed and in force shows on the finding that it waives.""",
    "host",
)
_TAKE_OUT = "correct the waiver in the inventory, or take it out (nearsocket list-checks shows the ids)"
_WAIVABLE = (Status.FAIL, Status.WARN, Status.UNKNOWN)


@dataclass(frozen=True)
class Waiver:
    """A waiver of an inventory: the check's id, host patterns (`*`, `?`, `[…]`, parted by commas), why, who, the last day."""

    id: str
    host: str
    reason: str
    owner: str
    expires: date
    #: Set by who has read the whole inventory: no host there has that name.
    nobody: bool = False

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


def naming(waivers: Iterable[Waiver], hosts: Iterable[str]) -> tuple[Waiver, ...]:
    """The waivers of an inventory of these hosts, those that name none of them marked so."""
    every = tuple(hosts)
    return tuple(dataclasses.replace(waiver, nobody=not any(map(waiver.names, every))) for waiver in waivers)


def idle(
    waivers: Sequence[Waiver], findings: Mapping[str, Sequence[Finding]], today: date, known: Collection[str] | None = None
) -> list[Finding]:
    """A warning for each waiver that waives nothing: unused (nothing is wrong there) or over (its findings count again).

    `findings` maps each audited host's name to its findings. A waiver says nothing here where its hosts were not audited, or
    where its check did not run on each of them. One that can never hold is told of: no host of the inventory has its name, or
    its id is none of `known`, the ids of all checks (None: not known). The subject of a warning is the first host that the
    waiver names, else the first audited one.
    """
    warnings = []
    for waiver in waivers:
        hosts = [name for name in findings if waiver.names(name)]
        never = _never(waiver, known, hosts)
        if never and findings:
            warnings.append(_warning(waiver, (hosts or list(findings))[0], never, _TAKE_OUT))
            continue
        looked_at = [[f for f in findings[name] if f.id == waiver.id] for name in hosts]
        if not hosts or not all(looked_at):
            continue
        needed = any(finding.status in _WAIVABLE for found in looked_at for finding in found)
        over = today > waiver.expires
        if over or not needed:
            warnings.append(_idle(waiver, hosts[0], needed, over))
    return warnings


def _never(waiver: Waiver, known: Collection[str] | None, audited: Collection[str]) -> str | None:
    """Why the waiver can never hold; None where it can."""
    if known is not None and waiver.id not in known:
        return "waives nothing: no check has that id"
    return "waives nothing: no host of the inventory has that name" if waiver.nobody and not audited else None


def _idle(waiver: Waiver, host: str, needed: bool, over: bool) -> Finding:
    expires = waiver.expires.isoformat()
    why = f"ended on {expires}" if over else "is unused: nothing fails, warns or is unknown there"
    then = ("; its findings count again" if needed else "; it is not needed any more") if over else ""
    remedy = "cure the finding, or agree on a new date in the inventory" if needed else "take the waiver out of the inventory"
    return _warning(waiver, host, f"{why}{then}", remedy)


def _warning(waiver: Waiver, host: str, why: str, remedy: str) -> Finding:
    summary = f"the waiver of {waiver.id} for {waiver.host} ({waiver.owner}: {waiver.reason}) {why}"
    evidence = (Evidence("inventory", f"id: {waiver.id}, host: {waiver.host}, expires: {waiver.expires.isoformat()}"),)
    return Finding(UNUSED_ID, Status.WARN, host, summary, evidence, remedy)


def in_force(maintenance: Maintenance | None, today: date) -> Maintenance | None:
    """The maintenance, where it is not over; the day `until` is its last."""
    if maintenance is None or today > date.fromisoformat(maintenance.until):
        return None
    return maintenance
