"""The exit code of a judgement: which findings count, and which code is worse (DESIGN, exit codes)."""

from __future__ import annotations

from collections.abc import Iterable

from nearsocket.model.errors import EXIT_CLEAN, EXIT_FAILURES, EXIT_UNKNOWN, EXIT_WARNINGS
from nearsocket.model.finding import CORE_IDS, Finding, Status

#: Codes of a judgement, from bad to good: a proven failure outranks a gap in knowledge.
WORST_FIRST = (EXIT_FAILURES, EXIT_UNKNOWN, EXIT_WARNINGS, EXIT_CLEAN)

#: Statuses from good to bad, for "the worst counts" among several findings of one id.
SEVERITY = (Status.NOT_APPLICABLE, Status.PASS, Status.WARN, Status.UNKNOWN, Status.FAIL)


def severity(status: Status) -> int:
    """How bad a status is beside others: 0 (not-applicable) to 4 (fail)."""
    return SEVERITY.index(status)


def worst_of(codes: Iterable[int]) -> int:
    """The worst of several codes in the order 2, 3, 1, 0; 0 where there is none. A code outside these four outranks them."""
    seen = set(codes)
    foreign = seen - set(WORST_FIRST)
    if foreign:
        return max(foreign)
    return next((code for code in WORST_FIRST if code in seen), EXIT_CLEAN)


def code_of(finding: Finding, strict: bool = False) -> int:
    """One finding's code. A waived one is 0: whoever stamps waivers leaves expired ones off, since they count."""
    if finding.waived is not None:
        return EXIT_CLEAN
    if finding.status is Status.FAIL:
        return EXIT_FAILURES
    if finding.status is Status.UNKNOWN:
        return EXIT_UNKNOWN if strict or finding.id in CORE_IDS else EXIT_WARNINGS
    if finding.status is Status.WARN:
        return EXIT_FAILURES if strict else EXIT_WARNINGS
    return EXIT_CLEAN


def exit_code(findings: Iterable[Finding], strict: bool = False) -> int:
    """The code of these findings: 0 clean, 1 warnings, 2 failures, 3 a core finding (`--strict`: any) is unknown."""
    return worst_of(code_of(finding, strict) for finding in findings)


def worst_status(statuses: Iterable[Status]) -> Status:
    """The worst of several statuses: fail, unknown, warn, pass, not-applicable; unknown where there is none."""
    return max(statuses, key=severity, default=Status.UNKNOWN)
