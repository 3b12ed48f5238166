"""A probe's report for programs: one JSON object, `nearsocket.probe/1`. docs/probe.md describes every key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, Optional

from nearsocket.model.finding import Status
from nearsocket.model.probe.report import SCHEMA, ProbeReport
from nearsocket.model.probe.series import Series
from nearsocket.report.json import finding


def render(reports: Sequence[ProbeReport], status: Status, code: int) -> str:
    """The JSON text: printable ASCII and line feeds alone, keys always in the same order, no line feed at the end."""
    whole = {"schema": SCHEMA, "probes": [_one(one) for one in reports], "status": status.value, "exit_code": code}
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def _one(report: ProbeReport) -> dict[str, Any]:
    return {
        "host": report.host,
        "subject": report.subject,
        "kind": report.kind,
        "key": dataclasses.asdict(report.key) if report.key else None,
        "facts": {str(rank): dict(facts) for rank, facts in sorted(report.facts.items())},
        "capped_bytes": report.capped_bytes,
        "measured": [{"name": name, "sizes": [_series(one) for one in series]} for name, series in report.tables.items()],
        "baseline": _baseline(report),
        "draws": [{"name": draw.name, "where": draw.where.value, "failed": draw.started.failed} for draw in report.draws],
        "prompts": [{**dataclasses.asdict(one), "tokens_s": round(one.tokens_s, 1)} for one in report.readings],
        "findings": [finding(found) for found in report.findings],
    }


def _baseline(report: ProbeReport) -> Optional[dict[str, Any]]:
    known = report.known
    return {"kept_at": known.kept_at, "sizes": [_series(one) for one in known.sizes]} if known else None


def _series(one: Series) -> dict[str, Any]:
    return {
        "size_bytes": one.size_bytes,
        "median_us": one.median_us,
        "p99_us": one.p99_us,
        "bus_gb_s": round(one.bus_gb_s, 3),
        "rounds_us": list(one.rounds_us),
        "wrong_elements": one.wrong,
    }
