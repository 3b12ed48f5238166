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
        "hosts": [host_object(host) for host in report.hosts],
        "status": report.status.value,
        "exit_code": report.exit_code,
    }
    return printable(whole, 2)


def printable(value: Any, indent: int | None = None) -> str:
    """The value as JSON of printable ASCII and line feeds alone; on one line where there is no indent."""
    # JSON allows DEL in a string; a terminal does not deserve it.
    return json.dumps(value, indent=indent, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def finding(found: Finding) -> dict[str, Any]:
    """One finding as `audit` and `explain` write it (DESIGN, Finding)."""
    return findingvalue.value(found)


def host_object(host: HostReport) -> dict[str, Any]:
    """One host as `audit` writes it."""
    return {
        "name": host.name,
        "status": host.status.value,
        "taken_at": host.taken_at,
        "maintenance": dataclasses.asdict(host.maintenance) if host.maintenance else None,
        "topology": topology(host.host) if host.host else None,
        "plan": None,
        "findings": [finding(found) for found in host.findings],
    }
