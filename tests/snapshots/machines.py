"""Fixtures of machines: how nodes, sockets and GPUs can lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nearsocket.model.snapshot import Snapshot
from tests.snapshots import engine, machine
from tests.snapshots.base import ADDRESSES, ON_1, TWO_GPUS, TWO_NODES, TWO_PACKAGES, absent, host
from tests.snapshots.engine import Task
from tests.snapshots.machine import GpuSpec, NodeSpec

H200: dict[str, Any] = {"name": "NVIDIA H200", "device": "0x2335"}


def _split(per_socket: int) -> tuple[NodeSpec, ...]:
    """Two sockets of `per_socket` nodes, four CPUs each, numbered 4K to 4K+3; 12 within a socket, 32 across."""
    count = 2 * per_socket
    rows = [
        " ".join("10" if a == b else "12" if a // per_socket == b // per_socket else "32" for b in range(count))
        for a in range(count)
    ]
    return tuple(NodeSpec(n, f"{4 * n}-{4 * n + 3}", rows[n], 64, 32, 20) for n in range(count))


def snc4() -> Snapshot:
    """SNC: four nodes a socket; sysfs names one node of socket 1, NVML the CPUs of the whole socket."""
    gpus = tuple(GpuSpec(at, 5, "20-23", None, "16-31") for at in ADDRESSES)
    tasks = engine.sglang(ADDRESSES, 5, cpus="16-31", mems="4-7")
    return host(_split(4), {0: "0-15", 1: "16-31"}, gpus, tasks, [engine.container(cpuset_mems="4-7")])


def snc2_open() -> Snapshot:
    """SNC: sysfs says nothing and NVML names the CPUs of both nodes of socket 0: the socket is known, the node is not."""
    gpus = tuple(GpuSpec(at, -1, "0-15", None, "0-7") for at in ADDRESSES)
    return host(_split(2), {0: "0-7", 1: "8-15"}, gpus, engine.sglang(ADDRESSES, 1), [engine.container()])


def nps4() -> Snapshot:
    """An AMD host with four nodes a socket and P2P between its GPUs: no nccl- file but the proxy pools."""
    gpus = (GpuSpec("0000:41:00.0", 1, "4-7", 1, "4-7"), GpuSpec("0000:c1:00.0", 5, "20-23", 5, "20-23"))
    devices = ("/dev/nvidia0", "/dev/nvidia1")
    tasks = [
        Task(5100 + r, (f"VLLM::Worker_TP{r}",), 5000, {g.pci: 80 << 30}, devices, engine.pool(r, 0)) for r, g in enumerate(gpus)
    ]
    tasks += [
        Task(5000, ("VLLM::EngineCore",), 4990),
        Task(4990, ("/usr/bin/python3", "/usr/bin/vllm", "serve", "m", "--port=8000"), 4980),
    ]
    return host(_split(4), {0: "0-15", 1: "16-31"}, gpus, tasks, [engine.container(name="vllm", pid=4980)], word="SYS")


def memoryless_node() -> Snapshot:
    """Node 1 has CPUs and GPUs, and no memory: every page goes to node 0."""
    nodes = (TWO_NODES[0], NodeSpec(1, ON_1, "21 10", 0, 0, 0))
    return host(nodes, tasks=engine.sglang(ADDRESSES, 0), containers=[engine.container()])


def cxl_node() -> Snapshot:
    """Node 2 is CXL memory without CPUs, nearest to node 1."""
    nodes = (NodeSpec(0, "0-7,16-23", "10 21 24"), NodeSpec(1, ON_1, "21 10 14"), NodeSpec(2, "", "24 14 10", 128, 120, 0))
    return host(nodes, tasks=engine.sglang(ADDRESSES, 2), containers=[engine.container()])


def vm_one_node() -> Snapshot:
    """A virtual machine with one H200 on one node: sysfs says -1, NVML gives all CPUs."""
    gpus = (GpuSpec("0000:06:00.0", -1, "0-23", None, "0-23", extra={"path": []}, **H200),)
    return host((NodeSpec(0, "0-23", "10"),), {0: "0-23"}, gpus)


def vm_nvml_knows() -> Snapshot:
    """A virtual machine with two nodes: sysfs says -1, NVML knows."""
    gpus = tuple(GpuSpec(at, -1, "0-31", 1, ON_1, **H200) for at in ADDRESSES)
    return host(gpus=gpus, tasks=engine.sglang(ADDRESSES, 1), containers=[engine.container()])


def vm_without_packages() -> Snapshot:
    """A virtual machine whose CPUs have package -1."""
    files = machine.cpu_files(TWO_PACKAGES)
    files = {path: "-1" if path.endswith("package_id") else text for path, text in files.items()}
    return host(tasks=engine.sglang(ADDRESSES, 1), containers=[engine.container()], sources={"cpus": files})


def sources_disagree() -> Snapshot:
    """sysfs says node 0, NVML node 1."""
    gpus = tuple(GpuSpec(at, 0, "0-7,16-23", 1, ON_1) for at in ADDRESSES)
    return host(gpus=gpus, tasks=engine.sglang(ADDRESSES, 1), containers=[engine.container()])


def no_source_knows() -> Snapshot:
    """Two nodes; sysfs says -1 and NVML gives all CPUs, which is no locality."""
    gpus = tuple(GpuSpec(at, -1, "0-31", None, "0-31") for at in ADDRESSES)
    return host(gpus=gpus, tasks=engine.sglang(ADDRESSES, 1), containers=[engine.container()])


def one_socket() -> Snapshot:
    """One socket of one node."""
    gpus = tuple(GpuSpec(at, 0, "0-15", 0, "0-15") for at in ADDRESSES)
    return host((NodeSpec(0, "0-15", "10"),), {0: "0-15"}, gpus, engine.sglang(ADDRESSES, 0, mems="0"), [engine.container()])


def one_node_two_packages() -> Snapshot:
    """Node interleaving in the firmware: two packages, one node."""
    gpus = tuple(GpuSpec(at, -1, "0-31", None, "0-31") for at in ADDRESSES)
    return host((NodeSpec(0, "0-31", "10"),), TWO_PACKAGES, gpus)


def without_nodes() -> Snapshot:
    """A kernel without NUMA."""
    gpus = tuple(GpuSpec(at, None, "", None, None) for at in ADDRESSES)
    gone = absent("no such folder")
    return host((NodeSpec(0, "0-15", "10"),), {0: "0-15"}, gpus, sources={"nodes": gone, "numactl": gone})


def grace() -> Snapshot:
    """Two Grace sockets, a GPU on each; the GPUs' memory is nodes 2 and 10, without CPUs."""
    nodes = (
        NodeSpec(0, "0-15", "10 40 80 120", 480, 400, 40),
        NodeSpec(1, "16-31", "40 10 120 80", 480, 400, 40),
        NodeSpec(2, "", "80 120 10 160", 184, 180, 0),
        NodeSpec(10, "", "120 80 160 10", 184, 180, 0),
    )
    name: dict[str, Any] = {"name": "NVIDIA GB200", "device": "0x2941"}
    gpus = (GpuSpec("0008:01:00.0", 0, "0-15", 0, "0-15", **name), GpuSpec("0018:01:00.0", 1, "16-31", 1, "16-31", **name))
    return host(nodes, {0: "0-15", 1: "16-31"}, gpus, word="NV18")


def sparse_nodes() -> Snapshot:
    """Node numbers 0 and 8, packages 0 and 8."""
    nodes = (NodeSpec(0, "0-7,16-23", "10 40"), NodeSpec(8, ON_1, "40 10"))
    gpus = tuple(GpuSpec(at, 8, ON_1, 8, ON_1) for at in ADDRESSES)
    return host(nodes, {0: "0-7,16-23", 8: ON_1}, gpus, engine.sglang(ADDRESSES, 8, mems="0,8"), [engine.container()])


def vfio() -> Snapshot:
    """A third GPU on node 0 is handed to a virtual machine; a virtual function of the first shares its bus."""
    kept = GpuSpec("0000:21:00.0", 0, "0-7,16-23", driver="vfio-pci")
    function = GpuSpec("0000:c1:00.4", 1, ON_1, driver="nvidia", extra={"path": ["0000:c0:01.0"]})
    snapshot = host(gpus=(*TWO_GPUS, kept), tasks=engine.sglang(ADDRESSES, 1), containers=[engine.container()])
    snapshot.data("pci").update(machine.pci((function,)))
    return snapshot


FIXTURES: Mapping[str, Callable[[], Snapshot]] = {
    "snc4": snc4,
    "snc2-open": snc2_open,
    "nps4": nps4,
    "memoryless-node": memoryless_node,
    "cxl-node": cxl_node,
    "vm-one-node": vm_one_node,
    "vm-nvml-knows": vm_nvml_knows,
    "vm-without-packages": vm_without_packages,
    "sources-disagree": sources_disagree,
    "no-source-knows": no_source_knows,
    "one-socket": one_socket,
    "one-node-two-packages": one_node_two_packages,
    "without-nodes": without_nodes,
    "grace": grace,
    "sparse-nodes": sparse_nodes,
    "vfio": vfio,
}
