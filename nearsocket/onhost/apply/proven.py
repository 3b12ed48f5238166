"""What is on the disk of paths between GPUs: what the last proof of each rests on, and what a probe that was cut off left."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Optional

from nearsocket.model import places
from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.probe import path
from nearsocket.model.probe.path import DueProbe, PathProbe
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout

_LARGEST = 64 << 10
_REMOVE_S = 60.0


def due(tree: Tree, probes: Iterable[PathProbe], replicas: Iterable[ReplicaEntry], begin: Iterable[str]) -> tuple[DueProbe, ...]:
    """The probes that come before the start of the units in `begin`."""
    starting, known = frozenset(begin), {one.replica: one for one in probes}
    found = []
    for replica in replicas:
        probe = known.get(replica.name) if replica.unit in starting else None
        reason = path.due(probe, basis(tree, replica.name)) if probe else None
        if probe and reason:
            found.append(DueProbe(probe, replica, reason))
    return tuple(found)


def basis(tree: Tree, replica: str) -> Optional[Mapping[str, Any]]:
    """What the last proof rests on; None where there is none that can be read: then the path is proven anew."""
    value = _read(tree, places.proven_file(replica))
    found = value.get("basis") if value.get("schema") == path.SCHEMA else None
    return found if isinstance(found, dict) else None


def keep(tree: Tree, probe: PathProbe) -> None:
    """The path is proven. Raises OSError."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    value = {"schema": path.SCHEMA, "proven_at": moment, "basis": dict(probe.basis)}
    _write(tree, places.proven_file(probe.replica), value)


def begin(tree: Tree, due: DueProbe) -> None:
    """A probe begins: what has to be ended where nobody is left to do it. Raises OSError."""
    start = due.probe.start
    _write(tree, places.probing_file(due.replica.name), {"runtime": start.runtime, "container": start.container})


def sweep(tree: Tree, systemctl: Systemctl, replica: Optional[str] = None) -> None:
    """End what probes that were cut off left (of that replica alone). Where a container stays, so does its mark. Raises OSError."""
    folder = tree.at(places.probing_file("x")).parent
    for file in sorted(folder.glob("*.probing")) if replica is None else [tree.at(places.probing_file(replica))]:
        if not disk.there(file):
            continue
        mark = _read(tree, places.probing_file(file.stem))
        runtime, container = mark.get("runtime"), mark.get("container")
        systemctl.stop([holder(file.stem)])
        named = isinstance(runtime, str) and isinstance(container, str) and runtime and container
        if not named or _ended(systemctl, str(runtime), str(container)):
            disk.remove(file)


def _ended(systemctl: Systemctl, runtime: str, container: str) -> bool:
    """Whether no such container is left."""
    try:
        output = systemctl.run([runtime, "rm", "--force", "--volumes", container], _REMOVE_S)
        if output.code == 0:
            return True
        found = systemctl.run([runtime, "container", "inspect", container], _REMOVE_S)
        # A runtime that is down fails at both, and the container runs on or comes back with it.
        return found.code != 0 and "no such container" in found.error.lower()
    except FileNotFoundError:
        return True  # no runtime, no container
    except (OSError, CommandTimeout):
        return False  # asked again by the next apply


def holder(replica: str) -> str:
    """The unit that needs the replica's mount while nothing of the replica runs: systemd takes away what nobody needs."""
    return f"nearsocket-path-{replica}.service"


def forget(tree: Tree, systemctl: Systemctl, replica: str) -> None:
    """Nothing is known of that replica's path. Raises OSError."""
    sweep(tree, systemctl, replica)
    for file in (places.proven_file(replica), places.probing_file(replica)):
        disk.remove(tree.at(file))


def _read(tree: Tree, file: str) -> Mapping[str, Any]:
    try:
        value = json.loads(disk.read(tree.at(file), _LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(tree: Tree, file: str, value: Mapping[str, Any]) -> None:
    disk.make_folders(tree.at(file).parent)
    disk.replace(tree.at(file), (json.dumps(value, indent=1, sort_keys=True) + "\n").encode(), 0o600)
