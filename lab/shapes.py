"""The shapes of a lab machine: which sockets, nodes, CPUs and memory the guest sees. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from lab.errors import LabError

#: Distances as firmware reports them: the node itself, another node of its socket, the other socket.
LOCAL, SAME_SOCKET, CROSS_SOCKET = 10, 12, 21


@dataclass(frozen=True)
class NodeShape:
    """A node: its socket, its cores within the socket (one CPU each), its memory in MiB (0: memoryless)."""

    socket: int
    cores: tuple[int, ...]
    memory_mib: int


@dataclass(frozen=True)
class Shape:
    """A machine's shape: nodes by number; every socket has `cores_per_socket` cores of one thread."""

    name: str
    summary: str
    cores_per_socket: int
    nodes: tuple[NodeShape, ...]
    #: The node of each GPU for show (lab/standins/gpu), in NVML's order.
    gpus: tuple[int, ...] = ()

    @property
    def sockets(self) -> int:
        """How many sockets there are."""
        return 1 + max(node.socket for node in self.nodes)

    @property
    def cpus(self) -> int:
        """How many CPUs there are."""
        return self.sockets * self.cores_per_socket

    @property
    def memory_mib(self) -> int:
        """All memory, in MiB."""
        return sum(node.memory_mib for node in self.nodes)

    def distance(self, one: int, other: int) -> int:
        """The distance between two nodes, as the guest's firmware tables say it."""
        if one == other:
            return LOCAL
        return SAME_SOCKET if self.nodes[one].socket == self.nodes[other].socket else CROSS_SOCKET

    def cpus_of(self, node: int) -> tuple[int, ...]:
        """The guest's CPU numbers of a node: QEMU numbers them socket by socket, core by core."""
        shape = self.nodes[node]
        return tuple(shape.socket * self.cores_per_socket + core for core in shape.cores)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "two-socket",
            "two sockets, one node each: the usual GPU server",
            2,
            (NodeShape(0, (0, 1), 1024), NodeShape(1, (0, 1), 1024)),
        ),
        Shape(
            "gpus",
            "two sockets, one node and two GPUs for show (stand-ins) each",
            2,
            (NodeShape(0, (0, 1), 1024), NodeShape(1, (0, 1), 1024)),
            (0, 0, 1, 1),
        ),
        Shape(
            "snc4",
            "two sockets, two nodes each (sub-NUMA clustering, or NPS2), two GPUs for show each",
            2,
            (NodeShape(0, (0,), 640), NodeShape(0, (1,), 640), NodeShape(1, (0,), 640), NodeShape(1, (1,), 640)),
            (0, 0, 2, 2),
        ),
        Shape(
            "memoryless",
            "two sockets, the second without memory (no DIMM on it), two GPUs for show each",
            2,
            (NodeShape(0, (0, 1), 1536), NodeShape(1, (0, 1), 0)),
            (0, 0, 1, 1),
        ),
        Shape("one-socket", "one socket, one node: nothing can be far", 2, (NodeShape(0, (0, 1), 1536),)),
    )
}


def shape(name: str) -> Shape:
    """The shape of that name; LabError where there is none."""
    if name not in SHAPES:
        raise LabError(f"expected a shape of {', '.join(SHAPES)}, found {name!r}")
    return SHAPES[name]
