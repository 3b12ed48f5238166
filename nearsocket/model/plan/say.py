"""The reasons of a plan in words: a decision for everything that it chose, and notes on what an operator should know. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from nearsocket.model import cpulist
from nearsocket.model.host import Engine, Host
from nearsocket.model.plan.values import Decision, ReplicaPlan
from nearsocket.model.settings import GIB, Layer, OnChange, Relief
from nearsocket.model.text import one_line

RELIEF_REASONS = {
    Relief.AUTO: "drop_caches where no neighbour runs, else reclaim per node, else fadvise on the model; chosen at each start",
    Relief.DROP: "drop_caches, host-wide: it also evicts what a neighbour has cached",
    Relief.NEAR: "reclaim on the near nodes alone (kernel 6.17 or newer)",
    Relief.WEIGHTS: "fadvise on the model's files alone",
    Relief.NONE: "as asked: nothing is done before a start",
}


def explained(host: Host, replica: ReplicaPlan, cpu_reason: str, port_reason: str, gate_reason: str) -> ReplicaPlan:
    """The replica with its decisions and notes."""
    settings = replica.settings
    near = cpulist.render(replica.near)
    shown = ", ".join(f"{gpu.pci} (index {gpu.index if gpu.index is not None else '?'})" for gpu in replica.gpus)
    named = "as named" if settings.gpus.wanted else f"{settings.gpus.count} chosen of the socket with the most free ones"
    sockets = ", ".join(map(str, replica.sockets))
    binds = replica.memory_nodes or frozenset(replica.ranks)
    if replica.ranks:
        held = "rank by rank, by the engine"
    else:
        used = [state.layer.value for state in replica.layers if state.used and state.layer is not Layer.CUMEM]
        held = f"held by {', '.join(used)}" if used else "nothing binds it"
    decisions = (
        Decision("GPUs", shown, f"{named}; the container gets them {replica.gate.value}: {gate_reason}"),
        Decision("socket", sockets, f"where its GPUs are; near: node {near}"),
        Decision("CPUs", cpulist.render(replica.cpus) or "none", cpu_reason),
        Decision("memory nodes", cpulist.render(binds) or "any", held),
        Decision("shared memory", _shm(replica), _shm_reason(replica)),
        Decision("engine's binding", *_own_binding(replica)),
        Decision("port", str(replica.port), port_reason),
        Decision("page cache", settings.relief.value, RELIEF_REASONS[settings.relief]),
        Decision("changed nodes", settings.on_change.value, _on_change(settings.on_change)),
        Decision("image patch", "eligible" if replica.patch.eligible else "not eligible", _patch(replica)),
    )
    return dataclasses.replace(replica, decisions=decisions, notes=_notes(host, replica))


def _shm(replica: ReplicaPlan) -> str:
    size = f"{replica.shm_bytes / GIB:.3g} GiB"
    return (
        f"{replica.shm.point}, {size}, bound to node {cpulist.render(replica.shm.nodes)}"
        if replica.shm
        else f"the container's own, {size}"
    )


def _shm_reason(replica: ReplicaPlan) -> str:
    asked = replica.settings.limits.shm_bytes is not None
    return "as asked" if asked else "a cap, not a reservation: 16 GiB, less where the near memory is small"


def _own_binding(replica: ReplicaPlan) -> tuple[str, str]:
    if replica.ranks:
        return "per rank", f"node {', '.join(map(str, replica.ranks))} in rank order, told by its arguments"
    if not any(state.used for state in replica.layers):
        return "left alone", "the plan binds nothing"
    if replica.settings.engine is Engine.SGLANG:
        return "off", "the unit binds: one owner (SGLANG_AUTO_NUMA_BIND=0)"
    return "off", "the unit binds; vLLM binds only when told"


def _on_change(policy: OnChange) -> str:
    if policy is OnChange.REFUSE:
        return "a start on other nodes than the plan's is refused"
    return "a start on other nodes than the plan's goes unbound, with a warning in the journal"


def _patch(replica: ReplicaPlan) -> str:
    return replica.patch.reason + (f"; {replica.patch.instead}" if replica.patch.instead else "")


def _notes(host: Host, replica: ReplicaPlan) -> tuple[str, ...]:
    lines = []
    if any(word.isdigit() for word in replica.settings.gpus.wanted):
        lines.append("GPUs are named by index, which can change between boots: name them by PCI address")
    bare = [node.id for node in host.nodes if node.socket in replica.sockets and (node.memoryless or node.cpuless)]
    if bare:
        lines.append(f"node {cpulist.render(bare)} of its socket has no memory or no CPUs and is left out")
    if len(replica.sockets) > 1:
        lines.append("its GPUs are on several sockets: half of every exchange crosses between them, bound or not")
    return tuple(lines)


def notes(host: Host, replicas: Sequence[ReplicaPlan]) -> tuple[str, ...]:
    """Who holds the GPUs that the plan gives out and is not ours: the first apply stops there."""
    lines = []
    for replica in replicas:
        for gpu in replica.gpus:
            for process in host.processes:
                if gpu.pci in process.gpus and "nearsocket" not in f"{process.unit or ''}{process.cgroup}":
                    who = process.unit or process.container or process.title
                    held = f"held by {one_line(who, 60)} (pid {process.pid}), not managed here"
                    lines.append(f"GPU {gpu.pci} of replica {replica.name} is {held}: the first apply stops there")
    return tuple(dict.fromkeys(lines))
