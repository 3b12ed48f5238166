"""Host and settings to a plan. Pure: the same values give the same plan, on a laptop from a saved snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model import near as nearness
from nearsocket.model.host import Gpu, Host
from nearsocket.model.near import one_socket
from nearsocket.model.plan import cpus, cumem, eligibility, fingerprint, gpus, layers, memory, ports, runtime, say, tune
from nearsocket.model.plan.values import Decision, GpuPlace, Plan, Refusal, ReplicaPlan, ShmMount
from nearsocket.model.settings import Adopt, Layer, ReplicaSettings, Settings, TuneSettings
from nearsocket.model.verdicts.scope import gpu_memory_nodes

#: Where the tmpfs of each replica is mounted on the server.
SHM_FOLDER = "/run/nearsocket/shm"


def plan(host: Host, settings: Settings, measured: Optional[Mapping[str, int]] = None) -> Plan:
    """The plan of that host. `measured`: replica name to the most host memory seen, in bytes.

    Where anything is refused the plan says so in `refusals` and must not be carried out; what could be placed is there to be read.
    """
    seats, refusals = _seats(host, settings)
    observed = {replica.name for replica in settings.replicas if replica.adopt is Adopt.OBSERVE}
    shares = cpus.share(
        host, {s.name: s.sockets for s in seats}, {s.name: min(s.near, default=0) for s in seats}, settings.reserved_cores
    )
    for socket, count, names in shares.short:
        reason = f"socket {socket} has {count} cores for {len(names)} replicas ({', '.join(names)})"
        refusals += [Refusal(name, reason, "give them fewer replicas, or another socket") for name in names if name not in observed]
    given, clashes = ports.assign(settings.replicas)
    refusals += clashes
    made = []
    for seat in seats:
        replica, faults = _place(host, seat, seats, shares.of[seat.name], given[seat.name], measured or {})
        made.append(replica)
        refusals += faults if seat.name not in observed else []  # it runs as it is, whatever a plan would say
    tuning = tune.tune(host, settings.tune)
    refusals += tuning.refusals
    decisions = tuning.decisions
    if settings.replicas:
        left = cpulist.render(shares.system) or "none"
        decisions = (Decision("system CPUs", left, "cores of the replicas' sockets that no replica gets"), *decisions)
    return Plan(
        host.name,
        host.taken_at,
        settings,
        tuple(made),
        fingerprint.of_host(host),
        tuple(refusals),
        decisions,
        (*_observing(settings, observed), *say.notes(host, made)),
        tuning.sysctl,
        tuning.thp,
    )


def _observing(settings: Settings, observed: set[str]) -> list[str]:
    told = [f"replica {name} is observed: it runs as it is, and nothing is written for it" for name in sorted(observed)]
    if observed and settings.tune != TuneSettings():
        told.append("`tune` reaches the whole host, replicas that are observed too")
    return told


@dataclass(frozen=True)
class _Seat:
    """A replica with its GPUs, before anything else is decided."""

    settings: ReplicaSettings
    gpus: tuple[Gpu, ...]
    sockets: tuple[int, ...]
    near: frozenset[int]

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.settings.name


def _seats(host: Host, settings: Settings) -> tuple[list[_Seat], list[Refusal]]:
    """The replicas whose GPUs and near nodes are known, and why the others have none."""
    seats: list[_Seat] = []
    refusals: list[Refusal] = []
    chosen = gpus.choose(host, settings.replicas)
    for replica in settings.replicas:
        found = chosen[replica.name]
        if isinstance(found, Refusal):
            refusals.append(found)
            continue
        seat, reason = _seat(host, replica, found)
        if seat is not None:
            seats.append(seat)
        elif reason is not None:
            refusals.append(reason)
    return seats, refusals


def _seat(host: Host, replica: ReplicaSettings, found: tuple[Gpu, ...]) -> tuple[Optional[_Seat], Optional[Refusal]]:
    unknown = [gpu.pci for gpu in found if not gpus.sockets_of(host, gpu)]
    if unknown:
        reason = f"the socket of GPU {', '.join(unknown)} is not known"
        return None, Refusal(replica.name, reason, "say where the GPUs are: `near` in the fleet file (see topology.gpu-node)")
    sockets = tuple(sorted({socket for gpu in found for socket in gpus.sockets_of(host, gpu)}))
    near = nearness.of_gpus(host, (gpu.pci for gpu in found)) or frozenset()
    coherent = gpu_memory_nodes(host)
    usable = frozenset(n.id for n in host.nodes if n.id in near and not n.memoryless and not n.cpuless and n.id not in coherent)
    bare = [s for s in sockets if not any(host.socket_of(node) == s for node in usable)]
    if bare:
        nodes = cpulist.render(n for n in near if host.socket_of(n) in bare)
        reason = f"node {nodes} near its GPUs has no memory: whatever is placed there lands on the other socket"
        return None, Refusal(
            replica.name, reason, "populate the socket's memory slots (see topology.node-population), or use other GPUs"
        )
    return _Seat(replica, found, sockets, usable), None


def _place(
    host: Host, seat: _Seat, seats: Sequence[_Seat], share: cpus.Share, port: ports.Port, measured: Mapping[str, int]
) -> tuple[ReplicaPlan, list[Refusal]]:
    replica = seat.settings
    beside = [other for other in seats if other.near & seat.near]
    settled = fingerprint.steady(host)
    caps = {o.name: memory.cap(settled, o.near, len(beside), o.settings.limits.shm_bytes) for o in beside}
    own = memory.need(replica, measured.get(replica.name))
    others = [memory.need(o.settings, measured.get(o.name)) for o in beside if o is not seat]
    all_caps = sum(caps.values())
    addresses = tuple(gpu.pci for gpu in seat.gpus)
    gate = cumem.gate(host, replica, addresses)
    ranks = _ranks(host, seat)
    ground = layers.Ground(
        seat.sockets,
        seat.near,
        one_socket(host),
        gate,
        memory.fit(host, seat.near, own, others, all_caps),
        memory.fit_shm(host, seat.near, all_caps),
        memory.host_cache(replica),
        ranks,
    )
    choice = layers.choose(replica, ground)
    refusals = list(choice.refusals)
    conflict = layers.own_binding_conflict(replica, choice)
    refusals += [conflict] if conflict else []
    patch = eligibility.patch(host, seat.gpus)
    if replica.image.patch and not patch.eligible:
        hint = patch.instead or "take `patch` out of the image's settings"
        refusals.append(Refusal(replica.name, f"patch {replica.image.patch}: {patch.reason}", hint))
    refusals += _cpu_limit(replica, share)
    size = caps[replica.name]
    shm = ShmMount(f"{SHM_FOLDER}/{slug(replica.name)}", size, seat.near) if choice.uses(Layer.SHM) else None
    hard = any(choice.uses(layer) for layer in (Layer.NUMACTL, Layer.CPUSET, Layer.SHM))
    gpu_gate, gate_reason = runtime.gpu_gate(host, replica.runtime, seat.gpus)
    no_way = runtime.no_way(host, replica.name, gpu_gate)
    refusals += [no_way] if no_way else []
    made = ReplicaPlan(
        settings=replica,
        gpus=tuple(GpuPlace(gpu.pci, gpu.index, gpu.uuid, gpu.node, gpu.socket) for gpu in seat.gpus),
        sockets=seat.sockets,
        near=seat.near,
        memory_nodes=seat.near if hard else frozenset(),
        cpus=_limited(host, seat.sockets, share.cpus, replica.limits.cpus),
        port=port.number,
        gate=gpu_gate,
        layers=choice.states,
        shm=shm,
        shm_bytes=size,
        ranks=ranks or () if choice.uses(Layer.PER_RANK) else (),
        cumem=choice.uses(Layer.CUMEM),
        patch=patch,
        decisions=(),
    )
    return say.explained(host, made, share.reason, port.reason, gate_reason), refusals


def _ranks(host: Host, seat: _Seat) -> Optional[tuple[int, ...]]:
    """Each GPU's own node, in rank order; its socket's lowest usable node where only the socket is known; None where neither is."""
    found: list[int] = []
    for gpu in seat.gpus:
        own = nearness.of_device(host, gpu) or frozenset()
        usable = sorted(node for node in own if node in seat.near)
        if gpu.node in seat.near and gpu.node is not None:
            found.append(gpu.node)
        elif usable and len(gpus.sockets_of(host, gpu)) == 1:
            found.append(usable[0])
        else:
            return None
    return tuple(found)


def _cpu_limit(replica: ReplicaSettings, share: cpus.Share) -> list[Refusal]:
    wanted = replica.limits.cpus
    if wanted is None or wanted <= len(share.cpus) or not share.cpus:
        return []
    return [Refusal(replica.name, f"{wanted} CPUs wanted, its share is {len(share.cpus)}", "lower limits.cpus")]


def _limited(host: Host, sockets: Sequence[int], own: frozenset[int], most: Optional[int]) -> frozenset[int]:
    """At most that many of the CPUs, whole cores only, taken from each socket in turn."""
    if most is None or most >= len(own):
        return own
    by_socket = [[core for core in cpus.cores(host, socket) if core <= own] for socket in sockets]
    order = [row[at] for at in range(max(map(len, by_socket), default=0)) for row in by_socket if at < len(row)]
    kept: set[int] = set()
    for core in order:
        if kept and len(kept) + len(core) > most:
            break
        kept |= core
    return frozenset(kept)


def slug(name: str) -> str:
    """A replica's name for slices and mounts: a dash there would nest slices in each other and need escaping in mount units."""
    return name.replace("-", "_")
