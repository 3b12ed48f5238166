"""Who claims to bind a replica: its unit, its container, the engine, its arguments; and whether they agree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.finding import Evidence, Status
from nearsocket.model.host import Engine, Host, Unit
from nearsocket.model.near import of_process, own_gpus
from nearsocket.model.text import brief
from nearsocket.model.verdicts.binding import memory_reach
from nearsocket.model.verdicts.engine_env import lookup, release
from nearsocket.model.verdicts.groups import Group, quoted, who

_NUMACTL = re.compile(r"numactl\s(?:.*?\s)?(?:--membind|-m)(?:=|\s+|(?<=-m))([0-9,-]+)")
_NODE_ARGUMENTS = re.compile(r"--numa-(?:node|bind-nodes)(?:=|\s+)((?:[0-9]+[\s,]*)+)")
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})


@dataclass(frozen=True)
class Owner:
    """One place that binds memory. `nodes` is what it names, or per rank the GPU's own node where `own_node` is set.

    `kernel` tells an enforcing owner (cpuset, unit) from one that asks at start-up (numactl and the engines' own binding).
    """

    name: str
    nodes: frozenset[int]
    kernel: bool
    own_node: bool
    evidence: Evidence


def owners(group: Group) -> tuple[Owner, ...]:
    """Every owner of the group's memory binding that the snapshot shows."""
    found: list[Owner] = []
    box = group.container
    if box is not None and _nodes(box.cpuset_mems):
        text = f"cpuset_mems={brief(box.cpuset_mems)} cpuset_cpus={brief(box.cpuset_cpus)}"
        source = f"{group.runtime} inspect {group.container_word}"
        found.append(Owner("the container's cpuset", _nodes(box.cpuset_mems), True, False, Evidence(source, text)))
    if group.unit is not None:
        found += _unit_owners(group.unit)
    text = " ".join([*(box.command if box else ()), *(word for process in group.processes for word in (*process.command, ""))])
    source = "the command line"
    numactl, named = _NUMACTL.search(text), _NODE_ARGUMENTS.search(text)
    if numactl:
        asked = Evidence(source, brief(numactl[0]))
        found.append(Owner("numactl", _nodes(numactl[1]), False, False, asked))
    if named:
        asked = Evidence(source, brief(named[0]))
        found.append(Owner(named[0].split("=")[0].split()[0], _nodes(named[1]), False, False, asked))
    elif "--numa-bind" in text.split():
        found.append(Owner("--numa-bind", frozenset(), False, True, Evidence(source, "--numa-bind")))
    elif group.engine is Engine.SGLANG:
        found += _sglang_owner(group)
    return tuple(found)


def _sglang_owner(group: Group) -> list[Owner]:
    """SGLang binds each scheduler to its GPU's node: on by default from 0.5.18, else where the variable says so."""
    setting = lookup(group, "SGLANG_AUTO_NUMA_BIND")
    version = release(group)
    if setting.value is not None:
        on, text = setting.value.strip().lower() in _TRUE, f"SGLANG_AUTO_NUMA_BIND={brief(setting.value)}"
    else:
        on = setting.known and version is not None and version.order >= (0, 5, 18)
        text = f"SGLang {version.text if version else ''}: SGLANG_AUTO_NUMA_BIND is on by default"
    return [Owner("SGLANG_AUTO_NUMA_BIND", frozenset(), False, True, Evidence(setting.source, text))] if on else []


def _unit_owners(unit: Unit) -> list[Owner]:
    found = []
    source = f"systemctl show {quoted(unit.id)}"
    if _nodes(unit.allowed_memory_nodes):
        text = f"AllowedMemoryNodes={brief(unit.allowed_memory_nodes)}"
        found.append(Owner("the unit's AllowedMemoryNodes", _nodes(unit.allowed_memory_nodes), True, False, Evidence(source, text)))
    # MPOL_BIND is 2 in uapi/linux/mempolicy.h; `systemctl show` of some versions prints the number.
    if unit.numa_policy in ("bind", "2") and _nodes(unit.numa_mask):
        text = f"NUMAPolicy={brief(unit.numa_policy)} NUMAMask={brief(unit.numa_mask)}"
        found.append(Owner("the unit's NUMAPolicy", _nodes(unit.numa_mask), True, False, Evidence(source, text)))
    return found


def _nodes(text: str) -> frozenset[int]:
    """The nodes of a list with commas or blanks; empty where it is none."""
    try:
        return cpulist.parse(",".join(text.replace(",", " ").split()))
    except ValueError:
        return frozenset()


@dataclass(frozen=True)
class Conflict:
    """Two words on one binding that do not fit, or one that does not hold."""

    status: Status
    text: str


def conflicts(host: Host, group: Group, found: Iterable[Owner]) -> tuple[Conflict, ...]:
    """What does not fit, the worst first; empty where all owners agree with each other and with the live binding."""
    every = tuple(found)
    seen: list[Conflict] = []
    for process in group.ranks:
        near, own, reach = of_process(host, process), own_nodes(host, own_gpus(host, process)), memory_reach(host, process)
        named = [(owner, (own or frozenset()) if owner.own_node else owner.nodes) for owner in every]
        for owner, nodes in named:
            if near and nodes and not owner.own_node and len(owner.nodes) and not nodes & near:
                at = f"node {cpulist.render(nodes)}, away from the GPU of {who(process)} at node {cpulist.render(near)}"
                seen.append(Conflict(Status.FAIL, f"{owner.name} binds to {at}"))
            if reach is not None and nodes and not reach.nodes <= nodes:
                lives = f"{who(process)} may take memory from node {cpulist.render(reach.nodes)}"
                seen.append(
                    Conflict(Status.WARN, f"{owner.name} asks for node {cpulist.render(nodes)} and is not in force: {lives}")
                )
        for index, (one, nodes) in enumerate(named):
            for other, others in named[index + 1 :]:
                seen += _pair(one, nodes, other, others)
    distinct = {conflict.text: conflict for conflict in seen}
    return tuple(sorted(distinct.values(), key=lambda conflict: conflict.status is not Status.FAIL))


def _pair(one: Owner, nodes: frozenset[int], other: Owner, others: frozenset[int]) -> list[Conflict]:
    """How two owners fit for one rank. An engine binds its rank inside the nodes that a cpuset leaves: that is agreement."""
    if not nodes or not others or nodes == others:
        return []
    text = f"{one.name} names node {cpulist.render(nodes)}, {other.name} node {cpulist.render(others)}"
    if not nodes & others:
        return [Conflict(Status.FAIL, text)]
    outer, inner = (nodes, others) if one.kernel else (others, nodes)
    if one.kernel != other.kernel and inner <= outer:
        return []
    return [Conflict(Status.WARN, text)]


def own_nodes(host: Host, gpus: Iterable[str]) -> Optional[frozenset[int]]:
    """The very nodes of these GPUs (under SNC a part of the socket); None where one is not known."""
    nodes = [gpu.node if gpu is not None else None for gpu in map(host.gpu, gpus)]
    known = frozenset(node for node in nodes if node is not None)
    return known if nodes and None not in nodes else None
