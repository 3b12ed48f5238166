"""Judges whether near nodes have room for what an engine takes at its start, and what stands in the way."""

from __future__ import annotations

import re
from typing import Optional

from nearsocket.model.finding import Evidence, Finding, Status, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host, Node, NodeMemory
from nearsocket.model.verdicts.binding import bound_group
from nearsocket.model.verdicts.groups import groups, quoted
from nearsocket.model.verdicts.reading import GIB, because, files, gib, refused, text, told, why

#: Room for NCCL's host buffers at a start: 32 channels x 8 ranks x 9.6 MB are 2.4 GiB, doubled. On small nodes a tenth.
NEEDED_BYTES, NEEDED_SHARE = 4 * GIB, 0.10
#: An ARC below this share of all memory is no matter.
ARC_SHARE = 0.10
RELIEF = "sync; echo 1 | sudo tee /proc/sys/vm/drop_caches  # host-wide; loading weights fills it again: bind the engine"
_LINES = re.compile(r"(MemTotal|MemFree|FilePages|Shmem|KReclaimable|SReclaimable):")


def reclaimable_bytes(memory: NodeMemory) -> int:
    """What the kernel can give back without swapping: page cache that is no shared memory, and slabs."""
    return max(memory.file_bytes - memory.shmem_bytes, 0) + memory.reclaimable_bytes


def needed_bytes(memory: NodeMemory) -> int:
    """The room that a start should find on a near node."""
    return int(min(NEEDED_BYTES, NEEDED_SHARE * memory.total_bytes))


def held_near(host: Host) -> Optional[str]:
    """What holds every running engine's buffers near, in words; None where nothing runs or one is not held."""
    held = [bound_group(host, group) for group in groups(host)]
    return " and ".join(sorted({word for word in held if word})) if held and all(held) else None


def judge_near_free(host: Host, node: Node) -> Finding:
    """One near node: enough free, filled by page cache, or short even without it."""
    subject, memory = f"node {node.id}", node.memory
    if memory is None:
        return unknown(subject, f"its memory could not be read: {why(host, 'nodes')}", because(host, "nodes"), "numactl -H")
    free, cache, need = memory.free_bytes, reclaimable_bytes(memory), needed_bytes(memory)
    evidence = [_meminfo(host, node, memory)]
    has = f"{gib(free)} free of {gib(memory.total_bytes)}, {gib(cache)} page cache and slabs"
    if free >= need:
        return passed(subject, has, evidence)
    held = held_near(host)
    if held:
        evidence.append(Evidence("running engines", f"held near by {held}"))
    if free + cache < need:
        summary = f"{has}: short of {gib(need)} even when all of it is reclaimed"
        remedy = f"numastat -m; ps -eo rss,pid,args --sort=-rss | head  # find what fills node {node.id} and stop or move it"
        return (warned if held else failed)(subject, summary, evidence, remedy)
    if held:
        return passed(subject, f"{has}: page cache fills it, and running engines are held near by {held}", evidence)
    return warned(subject, f"{has}: page cache fills it, the next start can put host buffers on a far node", evidence, RELIEF)


def judge_arc(host: Host, near: frozenset[int]) -> Finding:
    """ZFS's ARC against all memory, and against what near nodes have left."""
    size, total = host.arc_bytes, sum(node.memory.total_bytes for node in host.nodes if node.memory)
    if size is None:
        if not refused(host, "zfs.arcstats") and not host.source("zfs.arcstats").ok:
            return not_applicable(host.name, f"no ZFS here: {why(host, 'zfs.arcstats')}", because(host, "zfs.arcstats"))
        look = "grep -E '^(size|c_max)' /proc/spl/kstat/zfs/arcstats"
        return unknown(host.name, f"the ARC's size is not known: {why(host, 'zfs.arcstats')}", because(host, "zfs.arcstats"), look)
    if not total:
        return unknown(host.name, f"the ARC holds {gib(size)}, of how much memory is not known", because(host, "nodes"), "free -b")
    limit = re.search(r"^c_max\s+\d+\s+(\d+)", text(host, "zfs.arcstats"), re.MULTILINE)
    most = f", may grow to {gib(int(limit[1]))}" if limit else ""
    evidence = [Evidence("zfs.arcstats", f"size {size}" + (f", c_max {limit[1]}" if limit else ""))]
    summary = f"the ARC holds {gib(size)} of {gib(total)}{most}"
    if size <= ARC_SHARE * total:
        return passed(host.name, summary, evidence)
    wanted = int(ARC_SHARE * total)
    remedy = f"echo {wanted} | sudo tee /sys/module/zfs/parameters/zfs_arc_max\n"
    remedy += f"echo {quoted(f'options zfs zfs_arc_max={wanted}')} | sudo tee /etc/modprobe.d/zfs-arc.conf"
    short = [node for id in sorted(near) for node in [host.node(id)] if node and judge_near_free(host, node).status is Status.FAIL]
    if short:
        evidence += [_meminfo(host, node, node.memory) for node in short if node.memory]
        nodes = ", ".join(f"node {node.id}" for node in short)
        return failed(host.name, f"{summary}; {nodes} is short, and no page-cache relief empties an ARC", evidence, remedy)
    return warned(
        host.name, f"{summary}; it is no page cache: no relief empties it, and its node cannot be chosen", evidence, remedy
    )


def _meminfo(host: Host, node: Node, memory: NodeMemory) -> Evidence:
    """The node's meminfo lines that matter, as read; the parsed figures where a host was not made from files."""
    read = files(host, "nodes").get(f"node{node.id}/meminfo", "")
    lines = [" ".join(line.split()) for line in read.splitlines() if _LINES.search(line)]
    parsed = f"total {memory.total_bytes}, free {memory.free_bytes}, file {memory.file_bytes}, shmem {memory.shmem_bytes} bytes"
    return told(f"nodes node{node.id}/meminfo", "\n".join(lines) or parsed)
