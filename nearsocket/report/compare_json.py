"""A comparison for programs: one JSON object, `nearsocket.compare/1`. docs/compare.md describes every key."""

from __future__ import annotations

from typing import Any

from nearsocket.model.compare.values import Change, Comparison, HostComparison
from nearsocket.report.json import printable

SCHEMA = "nearsocket.compare/1"


def render(comparison: Comparison) -> str:
    """The JSON text: printable ASCII and line feeds alone, keys always in the same order, no line feed at the end."""
    hosts = [host_object(host) for host in comparison.hosts]
    return printable({"schema": SCHEMA, "hosts": hosts, "exit_code": comparison.exit_code}, 2)


def host_object(host: HostComparison) -> dict[str, Any]:
    """One host."""
    return {
        "name": host.name,
        "before": host.before,
        "after": host.after,
        "changes": [_change(change) for change in host.changes],
        "notes": list(host.notes),
        "exit_code": host.exit_code,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "section": change.section.value,
        "grade": change.grade.value,
        "subject": change.subject,
        "what": change.what,
        "before": change.before,
        "after": change.after,
        "id": change.id,
    }
