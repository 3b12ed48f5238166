"""Where buffers lie, seen from the GPUs of the processes that hold them: figures for drawing and JSON, no verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nearsocket.model.host import Buffer, BufferRole, Host, Replica

#: An unknown file of this size or more is treated as a ring buffer (DESIGN, explain: numa_maps).
LARGE_BYTES = 1 << 20


@dataclass(frozen=True)
class Share:
    """Bytes of some buffers on one node. `near` is None where no GPU tells what near is."""

    node: int
    size_bytes: int
    near: bool | None


def carries(buffer: Buffer) -> bool:
    """Whether the GPUs exchange data through this file: a ring buffer, or a large one of unknown role."""
    return buffer.role is BufferRole.RING or (buffer.role is BufferRole.UNKNOWN and buffer.size_bytes >= LARGE_BYTES)


def near_nodes(host: Host, buffer: Buffer) -> frozenset[int] | None:
    """The nodes on the sockets of the GPUs whose processes hold the buffer; None where no GPU with a socket is known.

    Where the host shows no GPU, the user's word (`--near`) counts.
    """
    held = [process for process in map(host.process, buffer.pids) if process]
    gpus = [gpu for process in held for gpu in map(host.gpu, process.gpus) if gpu]
    sockets = {gpu.socket for gpu in gpus if gpu.socket is not None}
    if not sockets and host.near:
        return host.near
    nodes = {node for socket in sockets for node in host.nodes_of_socket(socket)}
    return frozenset(nodes) or None


def near(host: Host, buffer: Buffer) -> bool | None:
    """True where 99 % of the file's bytes lie near, False where over 1 % of its present bytes lie far, None otherwise."""
    nodes = near_nodes(host, buffer)
    present = buffer.present_bytes
    if nodes is None or not present:
        return None
    close = sum(count for node, count in buffer.by_node.items() if node in nodes)
    if (present - close) * 100 > present:
        return False
    return True if close * 100 >= max(buffer.size_bytes, present) * 99 else None


def shares(host: Host, buffers: Iterable[Buffer]) -> tuple[Share, ...]:
    """The bytes of these buffers, added up by node and by near or far, in the order of nodes."""
    found: dict[tuple[int, bool | None], int] = {}
    for buffer in buffers:
        nodes = near_nodes(host, buffer)
        for node, count in buffer.by_node.items():
            if count:
                key = (node, None if nodes is None else node in nodes)
                found[key] = found.get(key, 0) + count
    return tuple(
        Share(node, count, close) for (node, close), count in sorted(found.items(), key=lambda item: (item[0][0], not item[0][1]))
    )


def unclaimed(host: Host) -> tuple[Buffer, ...]:
    """The buffers that no replica holds."""
    held = {buffer.identity for replica in host.replicas for buffer in replica.buffers}
    return tuple(buffer for buffer in host.buffers if buffer.identity not in held)


def ranks(host: Host, replica: Replica) -> frozenset[int]:
    """The ranks of the replica's processes, where their titles tell them."""
    found = (host.process(pid) for pid in replica.pids)
    return frozenset(process.rank for process in found if process and process.rank is not None)
