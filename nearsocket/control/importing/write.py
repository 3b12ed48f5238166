"""What an import found, as fleet YAML with its reasons, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from nearsocket.control.importing.values import Found, Import
from nearsocket.control.target import Target, Way
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.import/1"
_HEAD = """\
# Written by `nearsocket import`. Every replica is observed and nothing of it is changed: docs/beside.md says how to take it over.
# See what would be written: nearsocket plan THIS_FILE
"""


def to_yaml(imports: Sequence[Import], targets: Mapping[str, Target]) -> str:
    """A fleet file: hosts with their replicas; what could not be carried stands above its host as comments."""
    lines = [_HEAD]
    hosts = [entry for entry in imports if entry.found]
    lines.append("hosts:\n" if hosts else "# No engine was found that can be a replica.\n")
    for entry in imports:
        lines += [f"  # {one_line(f'{left.subject}: {left.what} is not carried: {left.reason}')}\n" for left in entry.left]
        if entry.found:
            host = {**reach(entry.host, targets.get(entry.host)), "replicas": [replica(one) for one in entry.found]}
            text = yaml.safe_dump([host], sort_keys=False, allow_unicode=True, width=132)
            lines.append("".join(f"  {line}\n" for line in text.splitlines()))
    return "".join(lines)


def reach(name: str, target: Target | None) -> dict[str, Any]:
    """How the host is reached, as its target was."""
    plain = name.partition(":")[0] if target and target.ssh and target.ssh.port else name
    made: dict[str, Any] = {"name": plain.strip("[]") or name}
    if target is None or target.way is Way.FILE:
        return made
    if target.way is Way.LOCAL:
        return {**made, "local": True}
    ssh = target.ssh
    if ssh:
        given = {"address": ssh.hostname if ssh.hostname != made["name"] else None, "user": ssh.user, "port": ssh.port}
        made.update({key: value for key, value in given.items() if value is not None})
    return {**made, **({"sudo": True} if target.sudo else {})}


def replica(found: Found) -> dict[str, Any]:
    """One replica, its keys in the order that a person reads them."""
    limits = {"shm": found.shm_bytes, "memlock": found.memlock_bytes}
    whole: dict[str, Any] = {
        "name": found.name,
        "adopt": "observe",
        "engine": found.engine.value,
        "runtime": found.runtime.value,
        "image": found.image,
        "gpus": list(found.gpus),
        "model": found.model,
        "port": found.port,
        "listen": found.listen,
        "command": list(found.command),
        "arguments": list(found.arguments),
        "environment": dict(found.environment),
        "nccl": dict(found.nccl),
        "secrets": {name: {"file": path} for name, path in found.secrets.items()},
        "mounts": list(found.mounts),
        "limits": {key: value for key, value in limits.items() if value is not None},
    }
    return {key: value for key, value in whole.items() if value not in ([], {})}


def to_json(imports: Sequence[Import], failed: Mapping[str, str], code: int) -> str:
    """`nearsocket.import/1`: printable ASCII, keys always in the same order."""
    hosts = [
        {
            "name": entry.host,
            "replicas": [{**replica(one), "container": one.container, "origin": one.origin} for one in entry.found],
            "left": [dataclasses.asdict(left) for left in entry.left],
            "reason": None,
        }
        for entry in imports
    ]
    hosts += [{"name": name, "replicas": [], "left": [], "reason": reason} for name, reason in failed.items()]
    return json.dumps({"schema": SCHEMA, "hosts": hosts, "exit_code": code}, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f")
