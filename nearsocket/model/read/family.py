"""What processes are to each other: children of a container's first process, and ranks of one engine by their titles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Optional

from nearsocket.model.host import Container, Process
from nearsocket.model.read import titles

#: Descent deeper than this is a damaged table (or a loop in it).
DEPTH_MAX = 64


def related(found: Sequence[Process], containers: Sequence[Container]) -> tuple[Process, ...]:
    """The processes in the same order, with container and rank filled in where only their relatives tell them."""
    return tuple(_ranked(_placed(found, containers)))


def _placed(found: Sequence[Process], containers: Sequence[Container]) -> list[Process]:
    """Those whose control group names no container, placed by descent from a container's first process.

    podman with --cgroups=disabled, or a private view of the control groups, leaves descent as the only sign.
    """
    parents = {process.pid: process.ppid for process in found}
    first = {box.pid: box.id for box in containers if box.pid > 1}
    placed: list[Process] = []
    for process in found:
        container = process.container
        pid: Optional[int] = process.pid
        for _ in range(DEPTH_MAX if container is None else 0):
            if pid is None or pid in first:
                container = first[pid] if pid is not None else None
                break
            pid = parents.get(pid)
        placed.append(dataclasses.replace(process, container=container))
    return placed


def _ranked(found: Sequence[Process]) -> list[Process]:
    """Those with a title that names a tensor-parallel place get their rank: pipeline stage x group size + place.

    The group's size is the highest place among the processes with the same parent, plus one. A rank that the NCCL log
    told stays for titles that name no place.
    """
    places = {process.pid: titles.coordinates(process.title) for process in found}
    sizes: dict[int, int] = {}
    for process in found:
        tp = places[process.pid].tp
        if tp is not None:
            sizes[process.ppid] = max(sizes.get(process.ppid, 0), tp + 1)
    ranked: list[Process] = []
    for process in found:
        place = places[process.pid]
        rank = process.rank
        if place.tp is not None:
            rank = (place.pp or 0) * sizes[process.ppid] + place.tp
        elif place.pp is not None:
            rank = place.pp
        ranked.append(dataclasses.replace(process, rank=rank))
    return ranked
