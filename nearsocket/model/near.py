"""Which nodes are near: those of the socket of the GPU that a process works on, for a buffer or group those of all its processes.

Near means the same socket (DESIGN, the words): under SNC or NPS all nodes of that socket are near. The user's word
(`--near`, Host.near) overrides everything. None means "not known", never "none": a set that lacks the node of one GPU
would call that GPU's own pages far, so one process without a known place makes the whole answer None. On a host with one
socket every node is near, whatever is known of its GPUs.

A process is near one socket only. A rank that holds memory on GPUs of two sockets works on the one that has most of it
(frameworks leave a context of some 500 MiB on GPU 0); where two sockets hold similar amounts, it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.host import Buffer, Device, Gpu, Host, Process, Replica

#: Drivers that hand a GPU to a virtual machine: no process of this host computes on it.
PASSED_THROUGH = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
#: A socket's GPUs are the process's own where they hold at least this many times what all other sockets' GPUs hold.
OWN_TIMES = 4


def misnamed(host: Host) -> Optional[str]:
    """What is wrong with the user's word: `--near names node 5, which this host lacks (it has node 0-1)`; None where nothing is."""
    lacking = (host.near or frozenset()) - {node.id for node in host.nodes}
    if not lacking or not host.nodes:
        return None
    has = cpulist.render(node.id for node in host.nodes)
    return f"--near names node {cpulist.render(lacking)}, which this host lacks (it has node {has})"


def one_socket(host: Host) -> bool:
    """Whether every node lies on one known socket, so that nothing can be far. A socket without memory counts too."""
    sockets = {node.socket for node in host.nodes}
    return len(sockets) == 1 and None not in sockets


def of_device(host: Host, device: Device) -> Optional[frozenset[int]]:
    """The nodes of the device's socket; its node alone where the socket is not known; None where neither is."""
    if host.near is not None:
        return _word(host)
    if device.socket is not None:
        nodes = host.nodes_of_socket(device.socket)
        if nodes:
            return nodes
    return frozenset({device.node}) if device.node is not None else None


def of_gpus(host: Host, addresses: Iterable[str]) -> Optional[frozenset[int]]:
    """The union over the GPUs at these PCI addresses; None where there is no GPU or one of them has no known node."""
    if host.near is not None:
        return _word(host)
    return _union(_of_address(host, address) for address in sorted(set(addresses)))


def of_process(host: Host, process: Process) -> Optional[frozenset[int]]:
    """The nodes of the socket that the process works on; those of its replica where it holds no GPU itself."""
    if host.near is not None:
        return _word(host)
    found = _held(host, process) if process.gpus else _of_replicas(host, (r for r in host.replicas if process.pid in r.pids))
    return found or _only_socket(host)


def of_processes(host: Host, processes: Iterable[Process]) -> Optional[frozenset[int]]:
    """The union over these processes, each by its own GPU: two sockets' nodes for a group that spans them."""
    if host.near is not None:
        return _word(host)
    return _union(of_process(host, process) for process in processes) or _only_socket(host)


def of_buffer(host: Host, buffer: Buffer) -> Optional[frozenset[int]]:
    """The nodes near the processes that map the file: both sides' in a group over two sockets.

    Where no mapping process is known to hold a GPU, those of the replica that has the file.
    """
    if host.near is not None:
        return _word(host)
    holders = [process for process in host.processes if process.pid in buffer.pids and process.gpus]
    if holders:
        return of_processes(host, holders)
    owners = (r for r in host.replicas if any(b.identity == buffer.identity for b in r.buffers))
    return _of_replicas(host, owners) or _only_socket(host)


def of_host(host: Host) -> Optional[frozenset[int]]:
    """The nodes of all GPUs that processes of this host can use; None where there is none or one has no known node."""
    return of_gpus(host, (gpu.pci for gpu in usable(host)))


def usable(host: Host) -> tuple[Gpu, ...]:
    """The GPUs that are not handed to a virtual machine."""
    return tuple(gpu for gpu in host.gpus if gpu.driver not in PASSED_THROUGH)


def own_gpus(host: Host, process: Process) -> tuple[str, ...]:
    """The PCI addresses of the GPUs that the process works on: all of one socket; empty where that is not known."""
    places: dict[Optional[frozenset[int]], list[str]] = {}
    for address in process.gpus:
        places.setdefault(_of_address(host, address), []).append(address)
    if len(places) < 2:
        return process.gpus
    held: dict[Optional[frozenset[int]], int] = {}
    for place, addresses in places.items():
        sizes = [process.gpu_bytes.get(address) for address in addresses]
        if any(size is None for size in sizes):
            return ()  # open devices alone, or NVML does not tell: CUDA opens every GPU that it can see
        held[place] = sum(size or 0 for size in sizes)
    most = max(held, key=lambda place: held[place])
    rest = sum(held.values()) - held[most]
    return tuple(places[most]) if held[most] >= OWN_TIMES * max(rest, 1) else ()


def _held(host: Host, process: Process) -> Optional[frozenset[int]]:
    return _union(_of_address(host, address) for address in own_gpus(host, process))


def _of_address(host: Host, address: str) -> Optional[frozenset[int]]:
    gpu = host.gpu(address)
    return of_device(host, gpu) if gpu else None


def _of_replicas(host: Host, replicas: Iterable[Replica]) -> Optional[frozenset[int]]:
    """By the replicas' processes that hold a GPU; by what the replicas list where no process does."""
    known = tuple(replicas)
    pids = {pid for replica in known for pid in replica.pids}
    holders = [process for process in host.processes if process.pid in pids and process.gpus]
    if holders:
        return _union(_held(host, process) for process in holders)
    return of_gpus(host, (gpu for replica in known for gpu in replica.gpus))


def _word(host: Host) -> Optional[frozenset[int]]:
    """The user's word, None where it names a node that the host lacks."""
    return None if misnamed(host) else host.near


def _only_socket(host: Host) -> Optional[frozenset[int]]:
    return frozenset(node.id for node in host.nodes) if one_socket(host) else None


def _union(places: Iterable[Optional[frozenset[int]]]) -> Optional[frozenset[int]]:
    found: set[int] = set()
    for nodes in places:
        if nodes is None:
            return None
        found |= nodes
    return frozenset(found) or None
