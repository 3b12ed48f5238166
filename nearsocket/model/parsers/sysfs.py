"""Nodes and CPUs from the files under /sys/devices/system/node and /sys/devices/system/cpu."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.host import NodeMemory
from nearsocket.model.parsers import meminfo, take

#: CONFIG_NODES_SHIFT is at most 10: a larger number is a damaged text.
NODES_MAX = 1024
_NODE = re.compile(r"node([0-9]{1,6})/(.+)", re.DOTALL)
_CPU = re.compile(r"cpu([0-9]{1,6})/topology/physical_package_id")


@dataclass(frozen=True)
class NodeFiles:
    """One node's folder. `cpus` is None where it could not be read; `has_memory` None where the kernel's list is missing.

    `distances`: one for each online node in ascending order of their numbers (drivers/base/node.c), not by number.
    """

    id: int
    cpus: Optional[frozenset[int]]
    distances: tuple[int, ...]
    memory: Optional[NodeMemory]
    has_memory: Optional[bool]


@dataclass(frozen=True)
class CpuFiles:
    """The CPUs: those online (None where not read), those that sysfs lists, and each one's package where it has one.

    A package of -1 (some virtual machines, CPUs that are offline) is left out.
    """

    online: Optional[frozenset[int]]
    listed: frozenset[int]
    package: Mapping[int, int]


def nodes(files: Mapping[str, str]) -> tuple[NodeFiles, ...]:
    """The online nodes in ascending order; where `online` cannot be read, every node that has a folder."""
    folders: dict[int, dict[str, str]] = {}
    for path, text in files.items():
        match = _NODE.fullmatch(path)
        if match and int(match[1]) < NODES_MAX:
            folders.setdefault(int(match[1]), {})[match[2]] = text
    online, with_memory = take.cpus(files.get("online")), take.cpus(files.get("has_memory"))
    return tuple(
        _node(id, folder, None if with_memory is None else id in with_memory)
        for id, folder in sorted(folders.items())
        if not online or id in online
    )


def _node(id: int, folder: Mapping[str, str], has_memory: Optional[bool]) -> NodeFiles:
    prefix = "hugepages/"
    huge = {path[len(prefix) :]: text for path, text in folder.items() if path.startswith(prefix)}
    return NodeFiles(
        id=id,
        cpus=take.cpus(folder.get("cpulist")),
        distances=distances(folder.get("distance", "")),
        memory=meminfo.node_memory(folder.get("meminfo", ""), huge),
        has_memory=has_memory,
    )


def distances(text: str) -> tuple[int, ...]:
    """A row such as `10 21`; empty where a member is not a number."""
    row = [take.number(part) for part in text.split()]
    return tuple(value for value in row if value is not None) if None not in row else ()


def cpus(files: Mapping[str, str]) -> CpuFiles:
    """The CPUs that the files tell of."""
    listed: set[int] = set()
    package: dict[int, int] = {}
    for path, text in files.items():
        match = _CPU.fullmatch(path)
        if match:
            listed.add(int(match[1]))
            number = take.number(text)
            if number is not None:
                package[int(match[1])] = number
    return CpuFiles(take.cpus(files.get("online")), frozenset(listed), package)
