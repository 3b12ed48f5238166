"""The report for programs: one JSON object, `nearsocket.report/1`. docs/report.md describes every key."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from nearsocket.model import findingvalue
from nearsocket.model.finding import Finding
from nearsocket.model.report import HostReport, Report
from nearsocket.report.topology import topology

SCHEMA = "nearsocket.report/1"


def render(report: Report) -> str:
    """The report's JSON text: printable ASCII and line feeds alone, keys always in the same order, no line feed at the end."""
    whole = {
        "schema": SCHEMA,
        "hosts": [_host(host) for host in report.hosts],
        "status": report.status.value,
        "exit_code": report.exit_code,
    }
    # JSON allows DEL in a string; a terminal does not deserve it.
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def finding(found: Finding) -> dict[str, Any]:
    """One finding as `audit` and `explain` write it (DESIGN, Finding)."""
    return findingvalue.value(found)


def _host(host: HostReport) -> dict[str, Any]:
    return {
        "name": host.name,
        "status": host.status.value,
        "taken_at": host.taken_at,
        "maintenance": dataclasses.asdict(host.maintenance) if host.maintenance else None,
        "topology": topology(host.host) if host.host else None,
        "plan": None,
        "findings": [finding(found) for found in host.findings],
    }
