"""Findings that say something else than before, by id and subject, and replicas that are gone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Optional

from nearsocket.model.compare.values import Change, Grade, Section, shown
from nearsocket.model.exitcode import severity
from nearsocket.model.finding import CORE_IDS, Finding, Status
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import refused

#: NVML's number of a GPU can change between two boots; its PCI address does not.
_NUMBERED = re.compile(r"\bGPU \d+ \(([0-9a-fA-F:.]+)\)")
_NUMBER = re.compile(r"\d[\d.,]*")
_BAD = (Status.WARN, Status.UNKNOWN, Status.FAIL)


def changes(before: Sequence[Finding], after: Sequence[Finding]) -> Iterator[Change]:
    """A change for each subject of each id whose status is another, or that is as bad and says something else.

    Subjects that one side lacks are taken together, by id:

    the worst of those before against the worst of those after.
    """
    old, new = _by_id(before), _by_id(after)
    for id in sorted(old.keys() & new.keys()):
        one, other = old[id], new[id]
        for subject in one.keys() & other.keys():
            yield from _change(one[subject], other[subject])
        gone, come = _worst(one, other), _worst(other, one)
        if gone and come:
            yield from _change(gone, come)
        elif come and come.status in _BAD:
            yield _made(come, None, _grade(None, come))
    for id in sorted(new.keys() - old.keys()):
        for found in new[id].values():
            if found.status in _BAD:
                yield _made(found, None, _grade(None, found))


def replicas(before: Host, after: Host) -> Iterator[Change]:
    """Replicas that ran and do not, or the other way round, where processes were read on both sides."""
    if refused(before, "processes") or refused(after, "processes"):
        return
    old, new = {one.name: one for one in before.replicas}, {one.name: one for one in after.replicas}
    for name in sorted(old.keys() - new.keys()):
        yield Change(Section.PLACEMENT, Grade.WARN, f"replica {name}", "no longer runs", f"{len(old[name].gpus)} GPUs", None)
    for name in sorted(new.keys() - old.keys()):
        yield Change(Section.PLACEMENT, Grade.CHANGED, f"replica {name}", "runs now", None, f"{len(new[name].gpus)} GPUs")
    for name in sorted(old.keys() & new.keys()):
        one, other = sorted(old[name].gpus), sorted(new[name].gpus)
        if one != other:
            yield Change(Section.PLACEMENT, Grade.CHANGED, f"replica {name}", "GPUs", shown(" ".join(one)), shown(" ".join(other)))


def _by_id(findings: Iterable[Finding]) -> dict[str, dict[str, Finding]]:
    """By id and subject; of several of one subject the worst."""
    found: dict[str, dict[str, Finding]] = {}
    for finding in findings:
        mine = found.setdefault(finding.id, {})
        subject = _NUMBERED.sub(r"GPU \1", finding.subject)
        known = mine.get(subject)
        if known is None or severity(finding.status) > severity(known.status):
            mine[subject] = finding
    return found


def _worst(these: Mapping[str, Finding], others: Mapping[str, Finding]) -> Optional[Finding]:
    alone = [these[subject] for subject in these if subject not in others]
    return max(alone, key=lambda finding: severity(finding.status), default=None)


def _change(before: Finding, after: Finding) -> Iterator[Change]:
    if before.status is not after.status:
        yield _made(after, before, _grade(before, after))
    elif after.status in _BAD and _words(before) != _words(after):
        yield _made(after, before, Grade.CHANGED)


def _words(finding: Finding) -> str:
    """What it says. Free memory and the like move by themselves: a core finding's numbers alone count (2 % far is not 100 %)."""
    return finding.summary if finding.id in CORE_IDS else _NUMBER.sub("#", finding.summary)


def _made(after: Finding, before: Optional[Finding], grade: Grade) -> Change:
    was = f"{before.status.value}: {before.summary}" if before else None
    now = f"{after.status.value}: {after.summary}"
    return Change(Section.PLACEMENT, grade, after.subject, "finding", shown(was), shown(now), after.id)


def _grade(before: Optional[Finding], after: Finding) -> Grade:
    """Worse is a regression of the new status, unless it is waived; better is a gain where it was bad before."""
    if after.waived is not None:
        return Grade.CHANGED
    if after.status is Status.UNKNOWN:
        return Grade.UNKNOWN if after.id in CORE_IDS else Grade.WARN
    if before is None or severity(after.status) > severity(before.status):
        worse = {Status.FAIL: Grade.FAIL, Status.WARN: Grade.WARN}
        return worse.get(after.status, Grade.CHANGED)
    return Grade.BETTER if before.status in _BAD and after.status is not Status.NOT_APPLICABLE else Grade.CHANGED
