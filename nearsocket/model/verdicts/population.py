"""Judges how memory and CPUs are spread over nodes: one rule for a live host and for a pasted `numactl -H`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nearsocket.model import cpulist
from nearsocket.model.finding import Evidence, Finding, failed, passed, unknown, warned
from nearsocket.model.host import Node
from nearsocket.model.verdicts.reading import GIB, gib

NODE_POPULATION = "topology.node-population"
#: Nodes may differ by this share and by this many bytes (the kernel's own reservations) before a missing module is suspected.
UNEVEN_SHARE, UNEVEN_BYTES = 0.10, 4 * GIB
LOOK = "numactl -H; sudo dmidecode -t memory | grep -E 'Locator|Size'"


def judge_nodes(
    subject: str,
    nodes: Sequence[Node],
    near: Iterable[int],
    evidence: Sequence[Evidence] = (),
    gpu_memory: frozenset[int] = frozenset(),
) -> Finding:
    """Whether every node has memory and CPUs, in even amounts.

    `near`: the nodes that GPUs use, which must have memory. `gpu_memory`: nodes that are a GPU's own memory, not judged.
    """
    shown = [*evidence, *(Evidence(f"node {node.id}", _told(node)) for node in nodes)]
    nodes = [node for node in nodes if node.id not in gpu_memory]
    bare = {node.id for node in nodes if node.memoryless}
    near_bare = bare & set(near)
    if near_bare:
        summary = f"node {cpulist.render(near_bare)}, near a GPU, has no memory: every host buffer of that GPU is far"
        return failed(subject, summary, shown, LOOK)
    if not nodes or any(node.memory is None and not node.memoryless for node in nodes):
        return unknown(subject, "the memory of a node could not be read", shown, LOOK)
    faults = []
    if any(not node.cpuless for node in nodes if node.id in bare):
        faults.append(f"node {cpulist.render(n.id for n in nodes if n.id in bare and not n.cpuless)} has CPUs and no memory")
    cpuless = [node.id for node in nodes if node.cpuless and not node.memoryless]
    if cpuless:
        faults.append(f"node {cpulist.render(cpuless)} has memory and no CPU")
    totals = {n.id: n.memory.total_bytes for n in nodes if n.memory is not None and not n.cpuless and not n.memoryless}
    if totals and max(totals.values()) - min(totals.values()) > max(UNEVEN_BYTES, UNEVEN_SHARE * max(totals.values())):
        few = min(totals, key=lambda id: totals[id])
        faults.append(
            f"node {few} has {gib(totals[few])} where another has {gib(max(totals.values()))}: is a memory module missing?"
        )
    if faults:
        note = "; NCCL ranks can disagree on where cuMem host memory goes" if bare or cpuless else ""
        return warned(subject, "; ".join(faults) + note, shown, LOOK)
    empty = f"; node {cpulist.render(bare)} is empty, far from every GPU" if bare else ""
    empty += f"; node {cpulist.render(gpu_memory)} is GPU memory" if gpu_memory else ""
    each = ", ".join(f"node {id} {gib(total)}" for id, total in sorted(totals.items()))
    return passed(subject, f"every node with CPUs has memory: {each}{empty}", shown)


def _told(node: Node) -> str:
    size = "no memory" if node.memoryless else gib(node.memory.total_bytes if node.memory else None)
    return f"cpus {cpulist.render(node.cpus) or 'none'}; {size}"
