"""Runs checks on a host: the one place where a host becomes findings."""

from __future__ import annotations

from collections.abc import Iterable

from nearsocket.model.check import Check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host


def judge(host: Host, checks: Iterable[Check]) -> tuple[Finding, ...]:
    """The findings of these checks on this host, ordered by id; a check's own order stays within its id.

    Pure: the same host and checks give the same findings. A fault inside a check is an `unknown` finding.
    """
    return tuple(finding for check in sorted(checks, key=lambda c: c.id) for finding in check.run(host))
