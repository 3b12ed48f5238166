"""Judges free memory of a near node from `numactl -H` alone, by the same need as an audit does."""

from __future__ import annotations

from collections.abc import Sequence

from nearsocket.model import cpulist
from nearsocket.model.finding import Evidence, Finding, passed, unknown, warned
from nearsocket.model.host import Node
from nearsocket.model.verdicts.nearmemory import RELIEF, needed_bytes
from nearsocket.model.verdicts.reading import gib

NEAR_FREE = "memory.near-free"


def judge_free(near: int, nodes: Sequence[Node], evidence: Sequence[Evidence] = ()) -> Finding:
    """Whether the near node of that number has the room that a start takes.

    Below it the text cannot tell page cache from memory in use, which an audit can: it warns, since in both cases the next
    start's host buffers can land far.
    """
    subject = f"node {near}"
    node = next((node for node in nodes if node.id == near), None)
    if node is None or node.memory is None:
        there = cpulist.render(other.id for other in nodes)
        return unknown(
            subject, f"the text has no node {near}, only {there}", evidence, "nvidia-smi topo -m  # the GPUs' nodes, for --near"
        )
    if node.memoryless:
        return unknown(subject, "the node has no memory of its own: see topology.node-population", evidence, "numactl -H")
    shown = [piece for piece in evidence if f"node {near} " in piece.text] or list(evidence)
    has = f"{gib(node.memory.free_bytes)} free of {gib(node.memory.total_bytes)}"
    if node.memory.free_bytes >= needed_bytes(node.memory):
        return passed(subject, has, shown)
    summary = f"{has}, less than a start takes ({gib(needed_bytes(node.memory))}): the next one can put host buffers on a far node"
    return warned(subject, summary, shown, RELIEF)
