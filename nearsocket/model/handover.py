"""Handing an engine that runs over to a replica: whose it is, and how it is to be done. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model import holders
from nearsocket.model.containment import unit_of
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest, ReplicaEntry
from nearsocket.model.host import Container, Host, Process
from nearsocket.model.parsers import take
from nearsocket.model.read import titles
from nearsocket.model.settings import Adopt
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import entries

_ARGV = re.compile(r"argv\[\]=(.*?)(?: ; |\Z)", re.DOTALL)


@dataclass(frozen=True)
class Handover:
    """`replica` takes over from `old_unit`, or, where no unit runs it, from `old_container` of `runtime`.

    `unit`: the replica's own. `restart`: the old container's restart policy, which must not bring it back. `stop_s`: how long the
    old engine gets to stop.
    """

    replica: str
    unit: str
    how: Adopt
    old_unit: Optional[str] = None
    old_container: Optional[str] = None
    runtime: str = "docker"
    restart: str = ""
    stop_s: int = 120

    @property
    def old(self) -> str:
        """The old engine in words."""
        return self.old_unit or f"container {self.old_container}"


def from_value(value: Mapping[str, Any]) -> Handover:
    """From JSON's own values. Raises KeyError, TypeError, ValueError."""
    return Handover(**{**value, "how": Adopt(value["how"])})


def handovers(
    host: Host, replicas: Sequence[ReplicaEntry], adopt: Mapping[str, Adopt], here: Optional[Manifest]
) -> tuple[Handover, ...]:
    """What each replica that is to be adopted takes over; nothing where nobody else holds its GPUs (any more).

    Raises NearsocketError where that is more or less than one engine, or one that cannot be stopped by name.
    """
    return tuple(
        found
        for replica in replicas
        if adopt.get(replica.name) in (Adopt.NEXT_RESTART, Adopt.NOW)
        for found in [_one(host, replica, adopt[replica.name], here)]
        if found is not None
    )


def _one(host: Host, replica: ReplicaEntry, how: Adopt, here: Optional[Manifest]) -> Optional[Handover]:
    olds: dict[str, tuple[Optional[str], Optional[Container]]] = {}
    for holder in holders.holding(host, replica.gpus, here):
        unit, box = None, holder.box
        if box is not None:
            unit = _unit(host, box)
        elif holder.process is not None:
            unit = _service(host, holder.process, replica)
        olds[unit or (box.id if box else "")] = (unit, box)
    if not olds:
        return None
    if len(olds) > 1:
        named = ", ".join(unit or f"container {one_line(box.name if box else '?', 60)}" for unit, box in olds.values())
        raise _refused(replica, f"several: {named}")
    unit, box = next(iter(olds.values()))
    more = _further(host, replica, unit, box)
    if more:
        raise _refused(replica, f"{unit or (box.name if box else '')} on GPU {more[0]} too, which is not this replica's")
    entry = next((e for e in entries(host, "containers") if box is not None and e.get("id") == box.id), {})
    name = (box.name or box.id) if box else None
    return Handover(
        replica.name,
        replica.unit,
        how,
        unit,
        name,
        box.runtime if box else replica.runtime,
        take.word(entry.get("restart")),
        replica.stop_s,
    )


def _service(host: Host, process: Process, replica: ReplicaEntry) -> str:
    """The unit that runs this process and nothing else. Raises NearsocketError where there is none.

    Who starts an engine by cron, ssh or a scheduler leaves it in that service's control group, and to stop that service would
    stop what has nothing to do with it: the unit's own command or main process has to be the engine.
    """
    said = f"process {process.pid} ({one_line(process.title, 60)})"
    if process.unit is None:
        raise _refused(replica, f"{said}, which no unit and no container runs")
    if any(part.startswith(("user@", "user.slice")) for part in process.cgroup.split("/")):
        raise _refused(replica, f"{said} of {one_line(process.unit, 60)}, a unit of a user's own")
    inside = [one for one in host.processes if one.unit == process.unit]
    unit = next((one for one in host.units if one.id == process.unit), None)
    mains = {one.pid for one in inside if one.engine is not None}
    if unit is None or not (unit.main_pid in mains or _runs_engine(unit.exec_start)):
        raise _refused(replica, f"{said} in {one_line(process.unit, 60)}, whose own command is not an engine")
    beside = [one for one in inside if one.engine is None and not _below(one, mains, inside)]
    if beside:
        raise _refused(replica, f"{said} of {one_line(process.unit, 60)}, which runs process {beside[0].pid} too")
    return process.unit


def _runs_engine(exec_start: str) -> bool:
    """Whether the words of ExecStart=, as `systemctl show` tells them (`{ path=... ; argv[]=... ; ...}`), start an engine."""
    found = _ARGV.search(exec_start)
    return titles.engine((found[1] if found else exec_start).split()) is not None


def _below(process: Process, mains: Collection[int], inside: Sequence[Process]) -> bool:
    """Whether it descends from one of these processes, by way of those that are known."""
    parents = {one.pid: one.ppid for one in inside}
    seen, at = set(), process.pid
    while at in parents and at not in seen:
        seen.add(at)
        at = parents[at]
        if at in mains:
            return True
    return False


def _unit(host: Host, box: Container) -> Optional[str]:
    found = unit_of(box, host.units)
    return found.id if found else None


def _further(host: Host, replica: ReplicaEntry, unit: Optional[str], box: Optional[Container]) -> list[str]:
    """GPUs that the old engine holds and the replica does not ask for."""
    held: set[str] = set()
    for process in host.processes:
        inside = holders.box_of(host, process)
        if (box is not None and inside is not None and inside.id == box.id) or (unit is not None and process.unit == unit):
            held |= set(process.gpus)
    return sorted(held - set(replica.gpus))


def _refused(replica: ReplicaEntry, found: str) -> NearsocketError:
    return NearsocketError(
        f"{replica.name}: expected one engine on its GPUs to take over from, found {found}",
        "give the replica the GPUs that the engine has, or stop what holds them by hand",
    )


def to_value(handover: Handover) -> dict[str, Any]:
    """JSON's own values."""
    return {**dataclasses.asdict(handover), "how": handover.how.value}
