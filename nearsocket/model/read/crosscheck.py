"""A second witness on the nodes: numactl reads them by itself, so that what it tells otherwise is worth a note."""

from __future__ import annotations

from collections.abc import Sequence

from nearsocket.model import cpulist
from nearsocket.model.host import Node
from nearsocket.model.parsers import numactl as parser
from nearsocket.model.read.notes import Notes


def numactl(text: str, nodes: Sequence[Node], notes: Notes) -> None:
    """Note where `numactl -H` disagrees with sysfs on nodes, CPUs or distances, or cannot be read; nothing where one is empty."""
    if not text.strip() or not nodes:
        return
    try:
        told = parser.parse(text)
    except parser.NumactlError as error:
        notes.add("numactl", f"not compared with sysfs: {error}")
        return
    if not told.numa:
        if len(nodes) > 1:
            notes.add("numactl", f"says that there is no NUMA, sysfs has {len(nodes)} nodes")
        return
    theirs, ours = {node.node: node for node in told.nodes}, {node.id: node for node in nodes}
    if set(theirs) != set(ours):
        notes.add("numactl", f"has the nodes {cpulist.render(theirs)}, sysfs {cpulist.render(ours)}")
    for number in sorted(set(theirs) & set(ours)):
        if theirs[number].cpus != ours[number].cpus:
            here, there = cpulist.render(ours[number].cpus) or "none", cpulist.render(theirs[number].cpus) or "none"
            notes.add("numactl", f"gives node {number} the CPUs {there}, sysfs {here}")
    if len(told.distances) == len(nodes) and set(theirs) == set(ours):
        for node, row in zip(told.nodes, told.distances):
            if ours[node.node].distances and tuple(ours[node.node].distances) != row:
                notes.add("numactl", f"gives node {node.node} the distances {row}, sysfs {tuple(ours[node.node].distances)}")
