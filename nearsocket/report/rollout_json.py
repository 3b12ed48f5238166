"""A rollout's report for programs: one JSON object, `nearsocket.rollout/1`. docs/rollout.md describes every key."""

from __future__ import annotations

import json
from typing import Any

from nearsocket.model.rollout.report import HostReport, Proof, ReplicaReport, RolloutReport

SCHEMA = "nearsocket.rollout/1"


def render(report: RolloutReport) -> str:
    """The JSON text: printable ASCII and line feeds alone, keys always in the same order, no line feed at the end."""
    whole = {
        "schema": SCHEMA,
        "job": report.job,
        "id": report.id,
        "by": report.by,
        "started_at": report.started_at,
        "took_s": report.took_s,
        "check": report.check,
        "resumed": report.resumed,
        "hosts": [_host(host) for host in report.hosts],
        "exit_code": report.exit_code,
    }
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def _host(host: HostReport) -> dict[str, Any]:
    return {
        "name": host.name,
        "end": host.end.value,
        "reason": host.reason,
        "hint": host.hint,
        "batch": host.batch or None,
        "before": host.before,
        "after": host.after,
        "wanted": host.wanted,
        "changes": list(host.changes),
        "notes": list(host.notes),
        "took_s": dict(host.took_s),
        "replicas": [_replica(one) for one in host.replicas],
    }


def _replica(one: ReplicaReport) -> dict[str, Any]:
    return {
        "name": one.name,
        "did": one.did,
        "took_s": one.took_s,
        "before": _proof(one.before),
        "after": _proof(one.after),
    }


def _proof(proof: Proof | None) -> dict[str, Any] | None:
    return {"status": proof.status.value, "line": proof.line, "started_at": proof.started_at} if proof else None
