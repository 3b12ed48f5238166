"""What a machine is made of: nodes, sockets, PCI devices, mounts, packages, the driver, units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional


@dataclass(frozen=True)
class NodeMemory:
    """One node's memory in bytes, from its meminfo. `file_bytes` is page cache (FilePages, shared memory included)."""

    total_bytes: int
    free_bytes: int
    file_bytes: int = 0
    shmem_bytes: int = 0
    anon_bytes: int = 0
    reclaimable_bytes: int = 0
    hugepages_bytes: int = 0
    hugepages_free_bytes: int = 0


@dataclass(frozen=True)
class Node:
    """A NUMA node. `socket` is None where its CPUs do not say (a node without CPUs takes its nearest node's socket).

    `memory` is None where it could not be read; `memoryless` is what the kernel says (has_memory).
    """

    id: int
    socket: Optional[int]
    cpus: frozenset[int]
    memory: Optional[NodeMemory]
    memoryless: bool = False
    distances: tuple[int, ...] = ()

    @property
    def cpuless(self) -> bool:
        """Whether the node has no CPU that is online."""
        return not self.cpus


@dataclass(frozen=True)
class Socket:
    """A CPU package and its nodes (several under SNC or NPS)."""

    id: int
    nodes: tuple[int, ...]
    cpus: frozenset[int]


@dataclass(frozen=True)
class PciLink:
    """A PCIe link: transfer rate in GT/s and lanes, now and at most; None where sysfs does not say."""

    speed_gts: Optional[float] = None
    width: Optional[int] = None
    max_speed_gts: Optional[float] = None
    max_width: Optional[int] = None


@dataclass(frozen=True)
class NodeClaim:
    """What one source says about a device's node: `node` None means that it says "none" (-1, N/A) or no single one.

    `nodes`: all that it names, several where a CPU list spans the nodes of one socket (SNC, NPS).
    """

    source: str
    node: Optional[int]
    text: str
    nodes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Device:
    """A PCI device: GPU or NIC. `claims` keeps every source's word on its node; `node` is the agreed one or None.

    `socket` can be known where `node` is None: the claims name several nodes, all of one socket (SNC, NPS).
    """

    pci: str
    name: str
    node: Optional[int]
    socket: Optional[int]
    claims: tuple[NodeClaim, ...]
    link: PciLink
    bridges: tuple[str, ...]
    bridge_links: Mapping[str, PciLink]
    root: str
    driver: Optional[str]

    @property
    def nodes_claimed(self) -> frozenset[int]:
        """The different nodes that sources name."""
        return frozenset(claim.node for claim in self.claims if claim.node is not None)


@dataclass(frozen=True)
class Gpu(Device):
    """A GPU, keyed by PCI address. `index` is NVML's (can change between boots); None where NVML was not read."""

    index: Optional[int] = None
    uuid: Optional[str] = None
    cpus: frozenset[int] = frozenset()
    memory_bytes: Optional[int] = None
    memory_used_bytes: Optional[int] = None
    persistence: Optional[bool] = None
    ecc_uncorrected: Optional[int] = None
    throttle: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    p2p: Mapping[str, str] = field(default_factory=dict)
    nvlinks_active: Optional[int] = None


@dataclass(frozen=True)
class Nic(Device):
    """A network card and its interface names."""

    interfaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mount:
    """One mount. `options` are the super block's (size=, mpol=), `policy` the text after mpol= or None.

    `root` is the folder of the file system that is mounted (not `/` for most bind mounts), `device` its major:minor,
    which a buffer's identity starts with: two mounts of one device share files and policy.
    """

    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    policy: Optional[str] = None
    root: str = "/"
    device: str = ""


@dataclass(frozen=True)
class Package:
    """An installed package: `status` as dpkg abbreviates it (`ii`, `hi` held, `rc` removed)."""

    name: str
    version: str
    status: str


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver as each place tells its version; None where that place said nothing."""

    module_loaded: Optional[str]
    module_kind: Optional[str]
    library: Optional[str]
    nvml: Optional[str]
    cuda: Optional[int]
    modinfo: Mapping[str, Optional[str]]


@dataclass(frozen=True)
class Unit:
    """A systemd unit that matters here, as `systemctl show` tells it."""

    id: str
    active: str
    sub: str
    main_pid: int
    numa_policy: str
    numa_mask: str
    allowed_memory_nodes: str
    allowed_cpus: str
    exec_start: str
    cgroup: str
