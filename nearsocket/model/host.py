"""The host: typed values made from a snapshot. Checks, plans and reports read this and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.machine import Device, Driver, Gpu, Mount, Nic, Node, NodeClaim, NodeMemory, Package, PciLink, Socket, Unit
from nearsocket.model.running import Buffer, BufferRole, Container, Engine, Process, Replica
from nearsocket.model.snapshot import MISSING, Source

__all__ = [
    "Buffer",
    "BufferRole",
    "Container",
    "Device",
    "Driver",
    "Engine",
    "Gpu",
    "Host",
    "Mount",
    "Nic",
    "Node",
    "NodeClaim",
    "NodeMemory",
    "Package",
    "PciLink",
    "Process",
    "Replica",
    "Socket",
    "Unit",
]


@dataclass(frozen=True)
class Host:
    """One host. `near` is the user's word on the GPUs' nodes (`--near`), None where not given.

    `sources` keeps each source's status, so that a check can say why it does not know. `notes`: what could not be read
    or had to be inferred, one line each. `cmdline`: the kernel's parameters, last value of each (empty text for a bare word).
    `program` is what the program that read the host says about itself (version, python, took_s).
    """

    name: str
    taken_at: str
    uid: Optional[int]
    kernel: Optional[str]
    os_id: Optional[str]
    sockets: tuple[Socket, ...]
    nodes: tuple[Node, ...]
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    mounts: tuple[Mount, ...]
    processes: tuple[Process, ...]
    replicas: tuple[Replica, ...]
    buffers: tuple[Buffer, ...]
    containers: tuple[Container, ...]
    packages: tuple[Package, ...]
    holds: frozenset[str]
    driver: Driver
    modules: frozenset[str]
    units: tuple[Unit, ...]
    sysctl: Mapping[str, str]
    sources: Mapping[str, Source]
    arc_bytes: Optional[int] = None
    arc_min_bytes: Optional[int] = None
    near: Optional[frozenset[int]] = None
    notes: tuple[str, ...] = ()
    cmdline: Mapping[str, str] = field(default_factory=dict)
    program: Mapping[str, str] = field(default_factory=dict)

    def source(self, name: str) -> Source:
        """The status of that source; an absent one with a reason where the snapshot lacks it."""
        return self.sources.get(name, MISSING)

    def node(self, id: int) -> Optional[Node]:
        """The node of that number."""
        return next((node for node in self.nodes if node.id == id), None)

    def gpu(self, pci: str) -> Optional[Gpu]:
        """The GPU at that PCI address."""
        return next((gpu for gpu in self.gpus if gpu.pci == pci), None)

    def process(self, pid: int) -> Optional[Process]:
        """The process of that number."""
        return next((process for process in self.processes if process.pid == pid), None)

    def socket_of(self, node: int) -> Optional[int]:
        """The socket that the node belongs to."""
        found = self.node(node)
        return found.socket if found else None

    def nodes_of_socket(self, socket: int) -> frozenset[int]:
        """The nodes of that socket."""
        return frozenset(node.id for node in self.nodes if node.socket == socket)
