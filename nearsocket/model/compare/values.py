"""The values of a comparison, and the exit code that they come to. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import EXIT_CLEAN, EXIT_FAILURES, EXIT_UNKNOWN, EXIT_WARNINGS
from nearsocket.model.exitcode import worst_of
from nearsocket.model.text import one_line

#: A text of a host on one line of a page.
_LONGEST = 200


class Section(str, enum.Enum):
    """What kind of thing changed; the order of a page."""

    HARDWARE = "hardware"
    PLACEMENT = "placement"
    FIGURES = "figures"
    VERSIONS = "versions"
    PARAMETERS = "parameters"


class Grade(str, enum.Enum):
    """What a change means, worst first: three kinds of regression, a change that is neither good nor bad, a gain."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    WARN = "warn"
    CHANGED = "changed"
    BETTER = "better"

    @property
    def regression(self) -> bool:
        """Whether it counts in the exit code."""
        return self in _CODES


_CODES = {Grade.FAIL: EXIT_FAILURES, Grade.UNKNOWN: EXIT_UNKNOWN, Grade.WARN: EXIT_WARNINGS}


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was. `before`, `after`: the two values, None where there is none.

    `id`: the finding's, where it is one; `what`: the property, or what the finding says now.
    """

    section: Section
    grade: Grade
    subject: str
    what: str
    before: Optional[str] = None
    after: Optional[str] = None
    id: Optional[str] = None


@dataclass(frozen=True)
class HostComparison:
    """One host. `before`, `after`: the names and moments of the two snapshots, None for a side that has no such host.

    `changes`: worst first. `notes`: what could not be compared, and why.
    """

    name: str
    before: Optional[str]
    after: Optional[str]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 no regression, 1 warnings only, 2 a regression to fail, 3 a core finding became unknown."""
        return worst_of(_CODES.get(change.grade, EXIT_CLEAN) for change in self.changes)


@dataclass(frozen=True)
class Comparison:
    """Every host, in the order of the later side."""

    hosts: tuple[HostComparison, ...]

    @property
    def exit_code(self) -> int:
        """The worst host's."""
        return worst_of(host.exit_code for host in self.hosts)


def worst_first(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Regressions, other changes, gains; within one grade by section, subject and property."""
    grades, sections = list(Grade), list(Section)
    return tuple(sorted(changes, key=lambda c: (grades.index(c.grade), sections.index(c.section), c.subject, c.id or "", c.what)))


def shown(value: Any) -> Optional[str]:
    """A value of a host as one line; None stays None."""
    return None if value is None else one_line(str(value), _LONGEST)


def differing(section: Section, subject: str, values: Iterable[tuple[str, Any, Any]]) -> Iterator[Change]:
    """A change for each `(property, before, after)` that differs. None on either side is "not told", and no change."""
    for what, before, after in values:
        if before is not None and after is not None and before != after:
            yield Change(section, Grade.CHANGED, subject, what, shown(before), shown(after))


def mappings(section: Section, subject: str, before: dict[str, str], after: dict[str, str]) -> Iterator[Change]:
    """A change for each name whose value is another, new or gone: both sides were read whole."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield Change(section, Grade.CHANGED, subject, one_line(name, _LONGEST), shown(old), shown(new))
