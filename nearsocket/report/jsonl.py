"""The report as JSON lines, `nearsocket.line/1`: one object a line, for log shippers and `jq` (docs/report.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nearsocket.model.report import Report
from nearsocket.report import json

SCHEMA = "nearsocket.line/1"


def render(report: Report) -> str:
    """A line for each host, each followed by a line for each of its findings, and one for the whole at the end."""
    return "".join(json.printable({"schema": SCHEMA, **line}) + "\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[dict[str, Any]]:
    for host in report.hosts:
        whole = json.host_object(host)
        findings = whole.pop("findings")
        yield {"kind": "host", **whole}
        for finding in findings:
            yield {"kind": "finding", "host": host.name, "taken_at": host.taken_at, **finding}
    yield {"kind": "report", "hosts": len(report.hosts), "status": report.status.value, "exit_code": report.exit_code}
