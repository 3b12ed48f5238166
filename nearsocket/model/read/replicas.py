"""Replicas: one engine instance each, named after its container, its unit or its engine."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Optional

from nearsocket.model.containment import unit_of
from nearsocket.model.host import Buffer, Container, Engine, Gpu, Process, Replica, Unit
from nearsocket.model.read import grouping, titles


@dataclasses.dataclass(frozen=True)
class Around:
    """What replicas are named and placed by."""

    gpus: Mapping[str, Gpu]
    containers: Mapping[str, Container]
    units: Sequence[Unit]


def replicas(
    processes: Sequence[Process],
    buffers: Sequence[Buffer],
    gpus: Sequence[Gpu],
    containers: Sequence[Container],
    units: Sequence[Unit],
) -> tuple[Replica, ...]:
    """The replicas in the order of their first process; equal names are told apart by port, else by number."""
    around = Around({gpu.pci: gpu for gpu in gpus}, {box.id: box for box in containers}, units)
    tying = grouping.tying_files(buffers)
    found = [_replica(members, buffers, tying, around) for members in grouping.instances(processes, tying)]
    return tuple(_told_apart(found))


def _replica(members: Sequence[Process], buffers: Sequence[Buffer], tying: frozenset[str], around: Around) -> Replica:
    pids = {process.pid for process in members}
    ranks = _ranks(members, tying)
    addresses = dict.fromkeys(gpu for process in [*ranks, *members] for gpu in process.gpus)
    sockets = {around.gpus[at].socket for at in addresses if at in around.gpus}
    container = next((process.container for process in members if process.container), None)
    box = around.containers.get(container or "")
    caller = unit_of(box, around.units)
    unit = next((process.unit for process in members if process.unit), None) or (caller.id if caller else None)
    engine = next((process.engine for process in members if process.engine), None)
    return Replica(
        name=_name(box, container, unit, engine, members),
        engine=engine,
        pids=tuple(sorted(pids)),
        gpus=tuple(addresses),
        sockets=tuple(sorted(socket for socket in sockets if socket is not None)),
        container=container,
        unit=unit,
        buffers=tuple(buffer for buffer in buffers if pids.intersection(buffer.pids)),
        ranks=tuple(process.pid for process in ranks),
        port=next((port for port in (titles.port(process.command) for process in members) if port is not None), None),
    )


def _ranks(members: Sequence[Process], tying: frozenset[str]) -> list[Process]:
    """The members that hold GPU memory or map a file that ties; where neither is known, those with a rank and a GPU."""
    found = [p for p in members if p.gpu_bytes or any(b.identity in tying for b in p.buffers)]
    found = found or [p for p in members if p.gpus and p.rank is not None]
    return sorted(found, key=lambda p: (p.rank is None, p.rank or 0, p.pid))


def _name(
    box: Optional[Container], container: Optional[str], unit: Optional[str], engine: Optional[Engine], members: Sequence[Process]
) -> str:
    if box is not None and box.name:
        return box.name
    if unit:
        return unit.removesuffix(".service")
    if container:
        return container[:12]
    return engine.value if engine else members[0].comm or f"process {members[0].pid}"


def _told_apart(found: Sequence[Replica]) -> list[Replica]:
    counts = Counter(replica.name for replica in found)
    ports = Counter((replica.name, replica.port) for replica in found)
    seen: Counter[str] = Counter()
    named: list[Replica] = []
    for replica in found:
        seen[replica.name] += 1
        name = replica.name
        if counts[name] > 1:
            alone = replica.port is not None and ports[(name, replica.port)] == 1
            name = f"{name}:{replica.port}" if alone else f"{name}#{seen[name]}"
        named.append(dataclasses.replace(replica, name=name))
    return named
