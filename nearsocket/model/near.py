"""Which nodes are near: those of the sockets of the GPUs that use a process, a replica or a buffer.

Near means the same socket (DESIGN, the words): under SNC or NPS all nodes of that socket are near. The user's word
(`--near`, Host.near) overrides everything. None means "not known", never "none": a set that lacks the node of one GPU
would call that GPU's own pages far, so one GPU without a known socket makes the whole answer None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from nearsocket.model.host import Buffer, Device, Gpu, Host, Process, Replica

#: Drivers that hand a GPU to a virtual machine: no process of this host computes on it.
PASSED_THROUGH = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})


def of_device(host: Host, device: Device) -> Optional[frozenset[int]]:
    """The nodes of the device's socket; its node alone where the socket is not known; None where neither is."""
    if host.near is not None:
        return host.near
    if device.socket is not None:
        nodes = host.nodes_of_socket(device.socket)
        if nodes:
            return nodes
    return frozenset({device.node}) if device.node is not None else None


def of_gpus(host: Host, addresses: Iterable[str]) -> Optional[frozenset[int]]:
    """The union over the GPUs at these PCI addresses; None where there is no GPU or one of them has no known node."""
    if host.near is not None:
        return host.near
    found: set[int] = set()
    for address in set(addresses):
        gpu = host.gpu(address)
        nodes = of_device(host, gpu) if gpu else None
        if nodes is None:
            return None
        found |= nodes
    return frozenset(found) or None


def of_process(host: Host, process: Process) -> Optional[frozenset[int]]:
    """The process's GPUs' nodes; those of its replica where it holds no GPU itself."""
    if process.gpus:
        return of_gpus(host, process.gpus)
    return of_gpus(host, (gpu for replica in host.replicas if process.pid in replica.pids for gpu in replica.gpus))


def of_replica(host: Host, replica: Replica) -> Optional[frozenset[int]]:
    """The nodes of all the replica's GPUs: two sockets' nodes for a group that spans them."""
    return of_gpus(host, replica.gpus)


def of_buffer(host: Host, buffer: Buffer) -> Optional[frozenset[int]]:
    """The nodes of the GPUs of the processes that map the file: both sides' in a group over two sockets.

    Where no mapping process is known to hold a GPU, the GPUs of the replica that has the file.
    """
    gpus = {gpu for process in host.processes if process.pid in buffer.pids for gpu in process.gpus}
    if not gpus:
        gpus = {gpu for r in host.replicas if any(b.identity == buffer.identity for b in r.buffers) for gpu in r.gpus}
    return of_gpus(host, gpus)


def of_host(host: Host) -> Optional[frozenset[int]]:
    """The nodes of all GPUs that processes of this host can use; None where there is none or one has no known node."""
    return of_gpus(host, (gpu.pci for gpu in usable(host)))


def usable(host: Host) -> tuple[Gpu, ...]:
    """The GPUs that are not handed to a virtual machine."""
    return tuple(gpu for gpu in host.gpus if gpu.driver not in PASSED_THROUGH)
