"""Which CPUs each replica gets: whole cores of its sockets, shared fairly, some left for the system. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import files

#: One core in so many is left for the system, at least one a socket: interrupts, the container runtime, sshd, the watch.
SYSTEM_SHARE = 16
_SIBLINGS = re.compile(r"cpu(\d+)/topology/thread_siblings_list\Z")

Core = frozenset[int]


@dataclass(frozen=True)
class Share:
    """One replica's CPUs, and how they came about in words."""

    cpus: frozenset[int]
    reason: str


@dataclass(frozen=True)
class Shares:
    """Every replica's share by name, the CPUs left for the system, and the sockets that have fewer cores than replicas."""

    of: Mapping[str, Share]
    system: frozenset[int]
    short: tuple[tuple[int, int, tuple[str, ...]], ...] = ()


def siblings(host: Host) -> Mapping[int, Core]:
    """CPU to the hardware threads of its core; empty where the snapshot does not say."""
    found: dict[int, Core] = {}
    for path, text in files(host, "cpus").items():
        match = _SIBLINGS.search(path)
        if match:
            try:
                found[int(match[1])] = cpulist.parse(text)
            except ValueError:
                continue
    return found


def cores(host: Host, socket: int) -> tuple[Core, ...]:
    """The socket's cores by node, then by number, offline threads left out; a CPU is a core where siblings are not known."""
    online = {cpu: node.id for node in host.nodes if node.socket == socket for cpu in node.cpus}
    threads = siblings(host)
    found: dict[Core, int] = {}
    for cpu, node in online.items():
        core = frozenset(other for other in threads.get(cpu, frozenset({cpu})) | {cpu} if online.get(other) == node)
        found[core] = node
    merged = _merged(list(found))
    return tuple(sorted(merged, key=lambda core: (online[min(core)], min(core))))


def _merged(groups: list[Core]) -> list[Core]:
    """Groups that overlap as one: sibling lists that contradict each other must not give one CPU to two replicas."""
    merged: list[set[int]] = []
    for group in groups:
        touching = [other for other in merged if other & group]
        for other in touching:
            merged.remove(other)
        merged.append(set(group).union(*touching))
    return [frozenset(group) for group in merged]


def share(host: Host, wanted: Mapping[str, Sequence[int]], order: Mapping[str, int], reserved: Optional[int] = None) -> Shares:
    """The CPUs of each replica, `wanted`: replica to its sockets. Cores go in runs, so that under SNC a replica stays by its node.

    `order` sorts a socket's replicas (the lowest node of their GPUs). `reserved`: cores a socket keeps for the system; left out,
    one in 16 and at least one, as long as each replica still gets a core.
    """
    parts: dict[str, set[int]] = {name: set() for name in wanted}
    words: dict[str, list[str]] = {name: [] for name in wanted}
    system: set[int] = set()
    short: list[tuple[int, int, tuple[str, ...]]] = []
    known = bool(siblings(host))
    for socket in sorted({socket for sockets in wanted.values() for socket in sockets}):
        names = sorted((name for name, sockets in wanted.items() if socket in sockets), key=lambda name: (order.get(name, 0), name))
        all_cores = cores(host, socket)
        if len(all_cores) < len(names):
            short.append((socket, len(all_cores), tuple(names)))
            continue
        kept = reserved if reserved is not None else max(1, len(all_cores) // SYSTEM_SHARE)
        kept = max(0, min(kept, len(all_cores) - len(names)))
        system |= {cpu for core in all_cores[:kept] for cpu in core}
        rest = all_cores[kept:]
        for at, name in enumerate(names):
            own = rest[len(rest) * at // len(names) : len(rest) * (at + 1) // len(names)]
            parts[name] |= {cpu for core in own for cpu in core}
            unit = "cores" if known else "CPUs (siblings not known)"
            fair = f", {len(names)} replicas share it" if len(names) > 1 else ""
            words[name].append(f"{len(own)} of {len(all_cores)} {unit} of socket {socket}{fair}, {kept} left for the system")
    return Shares({name: Share(frozenset(parts[name]), "; ".join(words[name])) for name in wanted}, frozenset(system), tuple(short))
