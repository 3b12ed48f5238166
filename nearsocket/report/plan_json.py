"""The plan for programs: one JSON object, `nearsocket.plan/1`. docs/plan.md describes every key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from nearsocket.model import cpulist
from nearsocket.model.plan.report import HostPlan
from nearsocket.model.plan.values import Decision, ReplicaPlan

SCHEMA = "nearsocket.plan/1"


def render(hosts: Sequence[HostPlan], exit_code: int) -> str:
    """The JSON text: printable ASCII and line feeds alone, keys always in the same order, no line feed at the end."""
    whole = {"schema": SCHEMA, "hosts": [host(entry) for entry in hosts], "exit_code": exit_code}
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def host(entry: HostPlan) -> dict[str, Any]:
    """One host."""
    plan, changes = entry.plan, entry.changes
    return {
        "name": entry.name,
        "status": entry.status.value,
        "reason": entry.reason,
        "hint": entry.hint,
        "taken_at": plan.taken_at if plan else None,
        "fingerprint": plan.fingerprint.digest if plan else None,
        "refusals": [dataclasses.asdict(refusal) for refusal in plan.refusals] if plan else [],
        "decisions": _decisions(plan.decisions) if plan else [],
        "notes": list(plan.notes) if plan else [],
        "replicas": [replica(one) for one in plan.replicas] if plan else [],
        "files": [dataclasses.asdict(file) for file in entry.manifest.files] if entry.manifest else [],
        "links": [{"path": link.path, "target": link.target} for link in entry.manifest.links] if entry.manifest else [],
        "changes": _changes(entry) if changes is not None else None,
        "changes_unknown": entry.unknown,
        "review": list(entry.review),
    }


def replica(one: ReplicaPlan) -> dict[str, Any]:
    """One replica: what goes where, which layers hold it, and each decision's reason. No value of its environment."""
    return {
        "name": one.name,
        "engine": one.settings.engine.value,
        "runtime": one.settings.runtime.value,
        "image": one.settings.image.reference,
        "model": one.settings.model,
        "gpus": [dataclasses.asdict(gpu) for gpu in one.gpus],
        "sockets": list(one.sockets),
        "near": sorted(one.near),
        "memory_nodes": sorted(one.memory_nodes),
        "ranks": list(one.ranks),
        "cpus": cpulist.render(one.cpus),
        "port": one.port,
        "shm": {"point": one.shm.point if one.shm else None, "size_bytes": one.shm_bytes},
        "layers": [{"layer": state.layer.value, "used": state.used, "reason": state.reason} for state in one.layers],
        "patch": dataclasses.asdict(one.patch),
        "decisions": _decisions(one.decisions),
        "notes": list(one.notes),
    }


def _decisions(decisions: Sequence[Decision]) -> list[dict[str, str]]:
    return [dataclasses.asdict(decision) for decision in decisions]


def _changes(entry: HostPlan) -> dict[str, Any]:
    value = dataclasses.asdict(entry.changes) if entry.changes else {}
    value["removed_replicas"] = [replica["name"] for replica in value.get("removed_replicas", ())]
    return value
