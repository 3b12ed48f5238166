"""Nodes and sockets from the `nodes`, `cpus` and `meminfo` sources.

A node's socket is the package of its CPUs (physical_package_id). A node without CPUs (CXL, HBM, a GPU's own memory) takes
the socket of the nearest node by distance. SNC and NPS give several nodes of one package.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.host import Node, NodeMemory, Socket
from nearsocket.model.parsers import meminfo, sysfs, take
from nearsocket.model.parsers.sysfs import CpuFiles, NodeFiles
from nearsocket.model.read.notes import Notes
from nearsocket.model.snapshot import Snapshot, SourceStatus

#: Share by which the nodes' memory and the machine's may differ (the kernel's own early reservations).
_MEMORY_SLACK = 0.02


def topology(snapshot: Snapshot, notes: Notes) -> tuple[tuple[Node, ...], tuple[Socket, ...]]:
    """The nodes and the sockets, each in ascending order; both empty where nothing could be read."""
    cpus = sysfs.cpus(take.text_map(snapshot.data("cpus")))
    files = sysfs.nodes(take.text_map(snapshot.data("nodes")))
    if not files:
        return _without_nodes(snapshot, cpus, notes)
    offline = cpus.listed - cpus.online if cpus.online else frozenset()
    if offline:
        notes.add("cpus", f"offline: {cpulist.render(offline)}")
    packages = _packages(cpus, files, notes)
    nodes = [_node(entry, files, cpus, packages, notes) for entry in files]
    nodes = _agreeing(_nearest_sockets(nodes, notes), meminfo.whole_memory(snapshot.text("meminfo")), notes)
    return tuple(nodes), _sockets(nodes, packages, cpus.online)


def _without_nodes(snapshot: Snapshot, cpus: CpuFiles, notes: Notes) -> tuple[tuple[Node, ...], tuple[Socket, ...]]:
    source = snapshot.source("nodes")
    memory = meminfo.whole_memory(snapshot.text("meminfo"))
    # A source that was refused or cut off says nothing about how many nodes there are; only a kernel without the folder does.
    if source.status is not SourceStatus.ABSENT or "nodes" not in snapshot.sources or (memory is None and not cpus.listed):
        notes.add("nodes", f"not read ({quoted_reason(source.reason)}): nodes and sockets are not known")
        return (), ()
    online = cpus.online or cpus.listed
    packages = {cpu: package for cpu, package in cpus.package.items() if cpu in online} or dict.fromkeys(online, 0)
    notes.add("nodes", "this kernel shows no NUMA nodes; all memory and CPUs are taken as node 0")
    nodes = [Node(0, _majority(packages, online, 0, notes), online, memory, False, (10,))]
    return tuple(nodes), _sockets(nodes, packages, online)


def quoted_reason(reason: Optional[str]) -> str:
    """The reason as one short printable text."""
    return ascii(reason)[1:-1][:80] if reason else "no reason given"


def _packages(cpus: CpuFiles, files: Sequence[NodeFiles], notes: Notes) -> Mapping[int, int]:
    """CPU to package. Where no CPU has one (-1 in some virtual machines) each node with CPUs counts as a socket."""
    if cpus.package:
        return cpus.package
    if len(files) > 1:
        notes.add("cpus", "no CPU has a package number; each node with CPUs is taken as a socket of its own")
    else:
        notes.add("cpus", "no CPU has a package number; the one node is taken as socket 0")
    first = len(files) == 1
    return {cpu: 0 if first else entry.id for entry in files for cpu in entry.cpus or ()}


def _node(entry: NodeFiles, files: Sequence[NodeFiles], cpus: CpuFiles, packages: Mapping[int, int], notes: Notes) -> Node:
    name = f"node {entry.id}"
    if entry.cpus is None:
        notes.add("nodes", f"{name}: its CPU list could not be read")
    if entry.memory is None:
        notes.add("nodes", f"{name}: its meminfo could not be read")
    if len(entry.distances) != len(files):
        notes.add("nodes", f"{name}: {len(entry.distances)} distances for {len(files)} nodes, left out")
    online = entry.cpus or frozenset()
    if cpus.online:
        online &= cpus.online
    memoryless = not entry.has_memory if entry.has_memory is not None else entry.memory is not None and not entry.memory.total_bytes
    return Node(
        id=entry.id,
        socket=_majority(packages, online, entry.id, notes),
        cpus=online,
        memory=entry.memory,
        memoryless=memoryless,
        distances=entry.distances if len(entry.distances) == len(files) else (),
    )


def _agreeing(nodes: list[Node], whole: Optional[NodeMemory], notes: Notes) -> list[Node]:
    """The nodes, their memory held against /proc/meminfo; with one node, /proc/meminfo counts where the two disagree.

    A virtual machine that was given memory after boot can count it in the whole and in no node (seen on Linux 6.18).
    """
    told = [node.memory.total_bytes for node in nodes if node.memory is not None]
    if whole is None or len(told) < len(nodes):
        return nodes
    apart = abs(sum(told) - whole.total_bytes)
    if apart <= _MEMORY_SLACK * max(sum(told), whole.total_bytes):
        return nodes
    notes.add("nodes", f"the nodes' memory adds up to {sum(told) >> 20} MiB, /proc/meminfo says {whole.total_bytes >> 20} MiB")
    if len(nodes) > 1:
        return nodes
    return [dataclasses.replace(nodes[0], memory=whole)]


def _majority(packages: Mapping[int, int], cpus: frozenset[int], node: int, notes: Notes) -> Optional[int]:
    counts = Counter(packages[cpu] for cpu in cpus if cpu in packages)
    if not counts:
        return None
    if len(counts) > 1:
        names = ", ".join(str(package) for package in sorted(counts))
        notes.add("nodes", f"node {node}: its CPUs are of several packages ({names}); memory cannot be placed by socket")
    return min(counts, key=lambda package: (-counts[package], package))


def _nearest_sockets(nodes: Sequence[Node], notes: Notes) -> list[Node]:
    """The nodes, those without CPUs on the socket of the nearest node that has one; None where two sockets are as near."""
    found: list[Node] = []
    for node in nodes:
        socket = node.socket
        if socket is None and node.cpuless and node.distances:
            known = [(node.distances[i], other.socket) for i, other in enumerate(nodes) if other.socket is not None]
            nearest = {other for distance, other in known if distance == min(known)[0]}
            socket = nearest.pop() if len(nearest) == 1 else None
            if socket is not None:
                notes.add("nodes", f"node {node.id}: no CPUs; taken to socket {socket}, the nearest by distance")
        if socket is None:
            notes.add("nodes", f"node {node.id}: its socket is not known")
        found.append(Node(node.id, socket, node.cpus, node.memory, node.memoryless, node.distances))
    return found


def _sockets(nodes: Sequence[Node], packages: Mapping[int, int], online: Optional[frozenset[int]]) -> tuple[Socket, ...]:
    """The packages with a CPU online and the sockets of nodes: a package that shares another's node has no node of its own."""
    cpus: dict[int, set[int]] = {node.socket: set() for node in nodes if node.socket is not None}
    for cpu, package in packages.items():
        if not online or cpu in online:
            cpus.setdefault(package, set()).add(cpu)
    return tuple(Socket(id, tuple(n.id for n in nodes if n.socket == id), frozenset(cpus[id])) for id in sorted(cpus))
