"""The machine below the engine: nodes, CPUs, PCI devices, NVML, driver and system sources as a snapshot holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearsocket.model import cpulist

GIB_KB = 1 << 20
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
DRIVER = "580.95.05"
KERNEL = "6.12.0-1-amd64"


@dataclass(frozen=True)
class NodeSpec:
    """A node: sizes in GiB, `distance` as sysfs writes it."""

    id: int
    cpus: str
    distance: str
    total: int = 256
    free: int = 128
    cache: int = 100


@dataclass(frozen=True)
class GpuSpec:
    """A GPU: what sysfs says, and what NVML says (None: NVML does not list it)."""

    pci: str
    sysfs_node: int | None
    local_cpus: str = ""
    nvml_node: int | None = None
    nvml_cpus: str | None = None
    driver: str | None = "nvidia"
    name: str = NAME
    device: str = "0x2bb5"
    klass: str = "0x030200"
    width: str = "16"
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def root_port(self) -> str:
        """The bridge above the device."""
        domain, bus, _ = self.pci.split(":")
        return f"{domain}:{int(bus, 16) - 1:02x}:01.0"


def node_files(nodes: Iterable[NodeSpec]) -> dict[str, str]:
    """The `nodes` source."""
    nodes = list(nodes)
    ids = cpulist.render(n.id for n in nodes)
    files = {
        "online": ids,
        "possible": ids,
        "has_cpu": cpulist.render(n.id for n in nodes if n.cpus),
        "has_memory": cpulist.render(n.id for n in nodes if n.total),
    }
    for n in nodes:
        sizes = {
            "MemTotal": n.total,
            "MemFree": n.free,
            "MemUsed": n.total - n.free,
            "FilePages": n.cache,
            "AnonPages": max(0, n.total - n.free - n.cache - 4),
            "Shmem": 1 if n.total else 0,
            "KReclaimable": 2 if n.total else 0,
            "SReclaimable": 2 if n.total else 0,
        }
        lines = [f"Node {n.id} {key + ':':<15} {size * GIB_KB:>9} kB" for key, size in sizes.items()]
        lines += [
            f"Node {n.id} HugePages_Total:     0",
            f"Node {n.id} HugePages_Free:      0",
            f"Node {n.id} HugePages_Surp:      0",
        ]
        files[f"node{n.id}/cpulist"] = n.cpus
        files[f"node{n.id}/distance"] = n.distance
        files[f"node{n.id}/meminfo"] = "\n".join(lines)
        files[f"node{n.id}/hugepages/hugepages-2048kB/nr_hugepages"] = "0"
        files[f"node{n.id}/hugepages/hugepages-2048kB/free_hugepages"] = "0"
    return files


def cpu_files(packages: Mapping[int, str], threads: int = 2) -> dict[str, str]:
    """The `cpus` source: package number to its CPUs; thread siblings are half the machine apart."""
    all_cpus = sorted(cpu for text in packages.values() for cpu in cpulist.parse(text))
    half = (max(all_cpus) + 1) // threads
    files = {"online": cpulist.render(all_cpus)}
    for package, text in packages.items():
        for cpu in sorted(cpulist.parse(text)):
            core = cpu % half
            files[f"cpu{cpu}/topology/physical_package_id"] = str(package)
            files[f"cpu{cpu}/topology/core_id"] = str(core)
            files[f"cpu{cpu}/topology/thread_siblings_list"] = ",".join(str(core + half * t) for t in range(threads))
    return files


def meminfo(nodes: Iterable[NodeSpec]) -> str:
    """The `meminfo` source: the nodes' sums."""
    nodes = list(nodes)
    total, free, cache = (sum(getattr(n, key) for n in nodes) * GIB_KB for key in ("total", "free", "cache"))
    rows = {"MemTotal": total, "MemFree": free, "MemAvailable": free + cache, "Buffers": 4096, "Cached": cache, "SwapTotal": 0}
    text = "".join(f"{key + ':':<15} {value:>9} kB\n" for key, value in rows.items())
    return text + "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n"


def pci(gpus: Iterable[GpuSpec], nic_node: int = 0, nic_cpus: str = "") -> dict[str, Any]:
    """The `pci` source: the GPUs, a root port above each, and one network card."""
    link = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
    found: dict[str, Any] = {
        "0000:17:00.0": {
            "vendor": "0x15b3",
            "device": "0x1017",
            "class": "0x020000",
            "numa_node": str(nic_node),
            "local_cpulist": nic_cpus,
            "current_link_speed": "8.0 GT/s PCIe",
            "current_link_width": "8",
            "max_link_speed": "8.0 GT/s PCIe",
            "max_link_width": "8",
            "driver": "mlx5_core",
            "net": ["ens1np0"],
            "path": [],
            "root": "pci0000:16",
        }
    }
    for gpu in gpus:
        root = "pci" + gpu.root_port[:-5]
        entry = {
            "vendor": "0x10de",
            "device": gpu.device,
            "class": gpu.klass,
            "local_cpulist": gpu.local_cpus,
            "current_link_width": gpu.width,
            "driver": gpu.driver,
            "net": [],
            "path": [gpu.root_port],
            "root": root,
            **link,
            **gpu.extra,
        }
        if gpu.sysfs_node is not None:
            entry["numa_node"] = str(gpu.sysfs_node)
        found[gpu.pci] = entry
        found[gpu.root_port] = {
            "vendor": "0x8086",
            "device": "0x352a",
            "class": "0x060400",
            "numa_node": str(gpu.sysfs_node if gpu.sysfs_node is not None else -1),
            "current_link_width": gpu.width,
            "driver": "pcieport",
            "net": [],
            "path": [],
            "root": root,
            **link,
        }
    return found


def uuid(index: int) -> str:
    """A made-up UUID."""
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def nvml(gpus: Iterable[GpuSpec], used: Mapping[str, list[tuple[int, int]]] | None = None, word: str = "NODE") -> dict[str, Any]:
    """The `nvml` source for the GPUs that NVIDIA's driver holds; `used`: PCI address to (pid, bytes)."""
    listed = [gpu for gpu in gpus if gpu.driver == "nvidia"]
    entries = []
    for index, gpu in enumerate(listed):
        processes = [{"pid": pid, "used_bytes": size} for pid, size in (used or {}).get(gpu.pci, [])]
        others = [other.pci for other in listed if other is not gpu]
        entries.append(
            {
                "index": index,
                "name": gpu.name,
                "uuid": uuid(index + 1),
                "pci": gpu.pci,
                "numa_node": gpu.nvml_node,
                "cpus": gpu.nvml_cpus,
                "memory_nodes": None if gpu.nvml_node is None else str(gpu.nvml_node),
                "pcie": {"gen": 5, "width": int(gpu.width), "max_gen": 5, "max_width": 16},
                "persistence": True,
                "ecc": {"current": True, "pending": True, "uncorrected": 0, "corrected": 0},
                "throttle": [],
                "memory": {"total_bytes": 96 << 30, "used_bytes": sum(p["used_bytes"] for p in processes) + (1 << 30)},
                "temperature_c": 41,
                "power_w": 83.0,
                "processes": processes,
                "nvlinks_active": 0,
                "p2p": dict.fromkeys(others, "chipset-not-supported"),
                "links": dict.fromkeys(others, word),
                "errors": {} if gpu.nvml_node is not None else {"nvmlDeviceGetMemoryAffinity": "Not Supported"},
            }
        )
    return {"driver_version": DRIVER, "nvml_version": f"13.{DRIVER}", "cuda_version": 13000, "gpus": entries}


def topo(gpus: Iterable[GpuSpec], word: str = "NODE") -> str:
    """The `nvidia.topo` source: what `nvidia-smi topo -m` prints for these GPUs."""
    listed = [gpu for gpu in gpus if gpu.driver == "nvidia"]
    lines = ["\t" + "".join(f"GPU{i}\t" for i in range(len(listed))) + "CPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for i, gpu in enumerate(listed):
        words = "".join((" X " if i == j else word) + "\t" for j in range(len(listed)))
        node = "N/A" if gpu.nvml_node is None else str(gpu.nvml_node)
        lines.append(f"GPU{i}\t{words}{gpu.nvml_cpus or 'N/A'}\t{node}\t\tN/A")
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "  NODE = Connection traversing PCIe within a NUMA node", ""])


def numactl(nodes: Iterable[NodeSpec]) -> str:
    """The `numactl` source."""
    nodes = list(nodes)
    lines = [f"available: {len(nodes)} nodes ({cpulist.render(n.id for n in nodes)})"]
    for n in nodes:
        lines.append(f"node {n.id} cpus: {' '.join(map(str, sorted(cpulist.parse(n.cpus))))}".rstrip())
        lines += [f"node {n.id} size: {n.total * 1024} MB", f"node {n.id} free: {n.free * 1024} MB"]
    lines += ["node distances:", "node  " + " ".join(f"{n.id:>3}" for n in nodes)]
    lines += [f"{n.id:>4}: " + " ".join(f"{d:>3}" for d in n.distance.split()) for n in nodes]
    return "\n".join(lines) + "\n"
