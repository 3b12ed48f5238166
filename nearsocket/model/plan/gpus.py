"""Which GPUs each replica gets: those that it names, else a choice that keeps a replica on one socket. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Optional, Union

from nearsocket.model import near as nearness
from nearsocket.model.host import Gpu, Host
from nearsocket.model.plan.values import Refusal
from nearsocket.model.settings import ReplicaSettings
from nearsocket.model.text import one_line

_ADDRESS = re.compile(r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z")
LOOK = "nearsocket audit HOST  # lists the GPUs by index and PCI address"

Chosen = Union[tuple[Gpu, ...], Refusal]


def address(text: str) -> Optional[str]:
    """A PCI address as sysfs writes it (`0000:c1:00.0`), from it or from NVML's form (`00000000:C1:00.0`, `c1:00.0`)."""
    match = _ADDRESS.match(text.strip().lower())
    if not match:
        return None
    domain = (match["domain"] or "0000").lstrip("0").rjust(4, "0")
    return f"{domain}:{match['rest']}"


def choose(host: Host, replicas: Sequence[ReplicaSettings]) -> Mapping[str, Chosen]:
    """Each replica's GPUs in PCI order, or why it has none. Replicas that name theirs come first, then the larger `auto` ones."""
    usable = {gpu.pci: gpu for gpu in nearness.usable(host)}
    chosen: dict[str, Chosen] = {}
    taken: dict[str, str] = {}
    for replica in replicas:
        if replica.gpus.wanted:
            found = _named(host, replica, usable, taken)
            chosen[replica.name] = found
            if not isinstance(found, Refusal):
                taken.update(dict.fromkeys((gpu.pci for gpu in found), replica.name))
    automatic = [replica for replica in replicas if not replica.gpus.wanted]
    for replica in sorted(automatic, key=lambda replica: (-replica.gpus.count, replica.name)):
        picked = _automatic(host, replica, [gpu for pci, gpu in usable.items() if pci not in taken], len(usable))
        chosen[replica.name] = picked
        if not isinstance(picked, Refusal):
            taken.update(dict.fromkeys((gpu.pci for gpu in picked), replica.name))
    return chosen


def _named(host: Host, replica: ReplicaSettings, usable: Mapping[str, Gpu], taken: Mapping[str, str]) -> Chosen:
    found: dict[str, Gpu] = {}
    for word in replica.gpus.wanted:
        gpu = _lookup(host, word)
        shown = one_line(word, 40)
        if gpu is None:
            there = ", ".join(f"{g.index if g.index is not None else '?'} at {g.pci}" for g in host.gpus) or "none"
            return Refusal(replica.name, f"GPU {shown}: this host has no such GPU (it has {there})", LOOK)
        if gpu.pci not in usable:
            return Refusal(
                replica.name, f"GPU {gpu.pci} is handed to a virtual machine ({gpu.driver})", "give it back, or name another"
            )
        if gpu.pci in found:
            return Refusal(replica.name, f"GPU {shown} is named twice ({gpu.pci})", "name each GPU once")
        if gpu.pci in taken:
            return Refusal(replica.name, f"GPU {gpu.pci} is already replica {taken[gpu.pci]}'s", "name another GPU")
        found[gpu.pci] = gpu
    return tuple(sorted(found.values(), key=lambda gpu: gpu.pci))


def _lookup(host: Host, word: str) -> Optional[Gpu]:
    if re.fullmatch(r"[0-9]{1,3}", word.strip()):
        return next((gpu for gpu in host.gpus if gpu.index == int(word)), None)
    wanted = address(word)
    return host.gpu(wanted) if wanted else None


def _automatic(host: Host, replica: ReplicaSettings, free: Sequence[Gpu], total: int) -> Chosen:
    """The socket with the most free GPUs takes the replica, so that replicas share sockets as little as they can."""
    count = replica.gpus.count
    if count > len(free):
        reason = f"{count} GPUs wanted and {len(free)} of {total} left: more replicas than GPUs"
        return Refusal(replica.name, reason, "take a replica out, or give each fewer GPUs")
    known = [gpu for gpu in free if sockets_of(host, gpu)]
    by_socket = Counter(socket for gpu in known for socket in sockets_of(host, gpu))
    largest = Counter(socket for gpu in nearness.usable(host) for socket in sockets_of(host, gpu))
    fitting = [socket for socket, number in by_socket.items() if number >= count]
    if fitting:
        socket = min(fitting, key=lambda socket: (-by_socket[socket], socket))
        near = [gpu for gpu in known if socket in sockets_of(host, gpu)]
        return tuple(sorted(_closest(near, count), key=lambda gpu: gpu.pci))
    if len(known) < count:
        reason = f"{count} GPUs wanted, and the socket is known of {len(known)} free ones only"
        return Refusal(replica.name, reason, "say where the GPUs are: `near` in the fleet file")
    if max(largest.values(), default=0) >= count:
        reason = f"no socket has {count} free GPUs (free: {_shown(by_socket)})"
        return Refusal(replica.name, reason, "name its GPUs to let it span sockets, or place the others by name")
    return tuple(sorted(sorted(known, key=lambda gpu: gpu.pci)[:count], key=lambda gpu: gpu.pci))


def _closest(gpus: Sequence[Gpu], count: int) -> list[Gpu]:
    """`count` of the GPUs, of one node where one has enough (SNC, NPS), in order of address."""
    ordered = sorted(gpus, key=lambda gpu: gpu.pci)
    by_node = Counter(gpu.node for gpu in ordered if gpu.node is not None)
    enough = [node for node, number in by_node.items() if number >= count]
    if enough:
        node = min(enough, key=lambda node: (by_node[node], node))  # the tightest one leaves room for larger replicas
        ordered = [gpu for gpu in ordered if gpu.node == node]
    return ordered[:count]


def sockets_of(host: Host, gpu: Gpu) -> tuple[int, ...]:
    """The sockets near the GPU: one, several where the user's `near` names several, none where it is not known."""
    if host.near is None and gpu.socket is not None:
        return (gpu.socket,)
    nodes = nearness.of_device(host, gpu) or frozenset()
    return tuple(sorted({socket for socket in map(host.socket_of, nodes) if socket is not None}))


def _shown(by_socket: Mapping[int, int]) -> str:
    return ", ".join(f"{number} on socket {socket}" for socket, number in sorted(by_socket.items())) or "none"
