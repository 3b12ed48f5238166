"""Where buffers lie, added up for drawing; what near means and what counts comes from the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nearsocket.model import near
from nearsocket.model.host import Buffer, Host, Replica
from nearsocket.model.verdicts.placement import payload_buffers


@dataclass(frozen=True)
class Share:
    """Bytes of some buffers on one node. `near` is None where no GPU tells what near is."""

    node: int
    size_bytes: int
    near: bool | None


def rings(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """The buffers that the GPUs exchange data through."""
    return payload_buffers(buffers)


def others(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """The buffers that they do not: proxy pools and control blocks."""
    known = tuple(buffers)
    kept = {buffer.identity for buffer in payload_buffers(known)}
    return tuple(buffer for buffer in known if buffer.identity not in kept)


def shares(host: Host, buffers: Iterable[Buffer]) -> tuple[Share, ...]:
    """The bytes of these buffers, added up by node and by near or far; far first on each node."""
    found: dict[tuple[int, bool | None], int] = {}
    for buffer in buffers:
        nodes = near.of_buffer(host, buffer)
        for node, count in buffer.by_node.items():
            if count:
                key = (node, None if nodes is None else node in nodes)
                found[key] = found.get(key, 0) + count
    ordered = sorted(found, key=lambda key: (key[1] is not False, key[0]))
    return tuple(Share(node, found[node, close], close) for node, close in ordered)


def unclaimed(host: Host) -> tuple[Buffer, ...]:
    """The buffers that no replica holds."""
    held = {buffer.identity for replica in host.replicas for buffer in replica.buffers}
    return tuple(buffer for buffer in host.buffers if buffer.identity not in held)


def totals(buffers: Iterable[Buffer]) -> dict[int, int]:
    """The bytes of these buffers on each node."""
    found: dict[int, int] = {}
    for buffer in buffers:
        for node, count in buffer.by_node.items():
            found[node] = found.get(node, 0) + count
    return found


def ranks(host: Host, replica: Replica, gpus: frozenset[str]) -> frozenset[int]:
    """The ranks of the replica's processes that use these GPUs (PCI addresses), where their titles tell them."""
    found = (host.process(pid) for pid in replica.pids)
    return frozenset(process.rank for process in found if process and process.rank is not None and gpus.intersection(process.gpus))
