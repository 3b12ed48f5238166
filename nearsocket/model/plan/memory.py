"""Whether a hard bind fits: a bound process that needs more than its nodes have is killed with the other socket free. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.host import Host
from nearsocket.model.settings import GIB, SHM_CAP_BYTES, ReplicaSettings

#: Options by which an engine takes host memory in proportion to something that the plan does not know.
_HOST_CACHE = re.compile(r"--(enable-hierarchical-cache|hicache-\S+|cpu-offload-gb|swap-space|kv-offloading-size|enable-lmcache)\Z")


@dataclass(frozen=True)
class Need:
    """What a replica takes of host memory at most, in bytes, and who says so; `bytes` None where nobody does."""

    bytes: Optional[int]
    source: str


@dataclass(frozen=True)
class Fit:
    """Whether it fits. `fits` None: it cannot be told. `reason` has the figures."""

    fits: Optional[bool]
    reason: str


def need(replica: ReplicaSettings, measured_bytes: Optional[int]) -> Need:
    """The larger of the declared and the measured host memory."""
    declared = replica.host_memory_bytes
    if declared is None and measured_bytes is None:
        return Need(None, "not declared")
    if measured_bytes is not None and measured_bytes > (declared or 0):
        return Need(measured_bytes, "measured")
    return Need(declared, "declared")


def host_cache(replica: ReplicaSettings) -> Optional[str]:
    """The argument by which the engine keeps a cache in host memory; None where there is none."""
    return next((word for word in replica.arguments if _HOST_CACHE.match(word.partition("=")[0])), None)


def room(host: Host, nodes: frozenset[int]) -> Optional[int]:
    """Bytes of these nodes that processes can have: all of it less huge pages and ARC's share; None where it was not read.

    ARC lies on all nodes; a part in proportion to the nodes' memory is taken off.
    """
    memories = [node.memory for node in host.nodes if node.id in nodes]
    every = [node.memory.total_bytes for node in host.nodes if node.memory]
    if not memories or None in memories:
        return None
    total = sum(memory.total_bytes for memory in memories if memory)
    huge = sum(memory.hugepages_bytes for memory in memories if memory)
    arc = int((host.arc_bytes or 0) * total / sum(every)) if sum(every) else 0
    return max(total - huge - arc, 0)


def about(count: int) -> int:
    """The number to eight binary digits: MemTotal moves a little with every boot, and a plan must not move with it."""
    lost = max(count.bit_length() - 8, 0)
    return (count + (1 << lost >> 1)) >> lost << lost


def cap(host: Host, nodes: frozenset[int], sharing: int, asked: Optional[int]) -> int:
    """The size of the replica's /dev/shm: as asked, else 16 GiB, on small nodes half of what they have, divided among replicas."""
    if asked is not None:
        return asked
    total = sum(node.memory.total_bytes for node in host.nodes if node.id in nodes and node.memory)
    small = about(total) // 2 // max(sharing, 1)
    size = min(SHM_CAP_BYTES, small) if small else SHM_CAP_BYTES
    return max(size >> 20, 1) << 20


def fit(host: Host, nodes: frozenset[int], own: Need, others: Iterable[Need], shm_bytes: int) -> Fit:
    """Whether a process bound to these nodes has room beside the other replicas that are bound there.

    `shm_bytes`: the caps of all replicas of these nodes together. tmpfs takes what is written, so the caps count only where
    nothing is declared.
    """
    has = room(host, nodes)
    where = f"node {cpulist.render(nodes)}"
    if has is None:
        return Fit(None, f"the memory of {where} could not be read")
    taken = sum(other.bytes or 0 for other in others)
    if own.bytes is None:
        verdict = shm_bytes + taken <= has
        sizes = f"{_gib(shm_bytes)} of /dev/shm" + (f" and {_gib(taken)} of other replicas" if taken else "")
        return Fit(
            verdict, f"host memory is not declared; {sizes} {'fit' if verdict else 'do not fit'} into {_gib(has)} of {where}"
        )
    verdict = own.bytes + taken <= has
    beside = f" beside {_gib(taken)} of other replicas" if taken else ""
    less = f" (less huge pages{' and ARC' if host.arc_bytes else ''})"
    return Fit(
        verdict, f"{_gib(own.bytes)} {own.source}{beside} {'fit' if verdict else 'do not fit'} into {_gib(has)} of {where}{less}"
    )


def fit_shm(host: Host, nodes: frozenset[int], caps_bytes: int) -> Fit:
    """Whether the caps of all replicas' /dev/shm on these nodes fit there together; unread memory forbids nothing (`fits` None)."""
    has, where = room(host, nodes), f"node {cpulist.render(nodes)}"
    if has is None:
        return Fit(None, f"the memory of {where} could not be read")
    fits = caps_bytes <= has
    return Fit(fits, f"caps of {_gib(caps_bytes)} in all {'fit' if fits else 'do not fit'} into {_gib(has)} of {where}")


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"
