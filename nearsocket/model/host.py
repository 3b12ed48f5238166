"""The host: typed values made from a snapshot. Checks, plans and reports read this and nothing else."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.snapshot import MISSING, Source


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


class BufferRole(str, enum.Enum):
    """What an nccl- file is for. Only `ring` (and large `unknown`) ones carry what the GPUs exchange."""

    RING = "ring"
    PROXY_POOL = "proxy-pool"
    CONTROL = "control"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Buffer:
    """One nccl- file, merged over its mappings and over processes. `size_bytes` is its length, where known.

    `by_node`: bytes present, node to bytes; `identity` tells two containers' equal names apart (device:inode).
    """

    file: str
    identity: str
    role: BufferRole
    size_bytes: int
    by_node: Mapping[int, int]
    deleted: bool
    pids: tuple[int, ...] = ()
    policies: tuple[str, ...] = ()

    @property
    def present_bytes(self) -> int:
        """Bytes whose node is known."""
        return sum(self.by_node.values())


class Engine(str, enum.Enum):
    """The engines that are known by their titles (FIELD_NOTES 5)."""

    SGLANG = "sglang"
    VLLM = "vllm"


@dataclass(frozen=True)
class Process:
    """A process that uses a GPU, an nccl- file or belongs to an engine. `policy` is the task's memory policy text.

    `mems_allowed` and `cpus` are what the kernel enforces now (empty where not read). `environ` is None where it could not
    be read or was wiped. `gpus` are NVML's; the open devices' where NVML names no process at all. `uid` is -1 where not read.
    """

    pid: int
    ppid: int
    start_ticks: int
    uid: int
    comm: str
    command: tuple[str, ...]
    title: str
    cgroup: str
    container: Optional[str]
    unit: Optional[str]
    cpus: frozenset[int]
    mems_allowed: frozenset[int]
    policy: Optional[str]
    sys_nice: Optional[bool]
    environ: Optional[Mapping[str, str]]
    environ_reason: Optional[str]
    gpus: tuple[str, ...]
    gpu_bytes: Mapping[str, Optional[int]]
    engine: Optional[Engine]
    rank: Optional[int]
    shm_mount: Optional[Mount]
    shm_size_bytes: Optional[int]
    shm_free_bytes: Optional[int]
    buffers: tuple[Buffer, ...]
    buffers_by: Optional[str]
    buffers_reason: Optional[str]
    nccl_log: Optional[str] = None
    nspid: tuple[int, ...] = ()


@dataclass(frozen=True)
class Container:
    """A running container of Docker or podman, as its runtime describes it (environment: allowed names only)."""

    runtime: str
    id: str
    name: str
    image: str
    pid: int
    privileged: bool
    cap_add: tuple[str, ...]
    security_opt: tuple[str, ...]
    ipc_mode: str
    shm_size_bytes: Optional[int]
    cpuset_cpus: str
    cpuset_mems: str
    cgroup_parent: str
    gpu_requests: tuple[str, ...]
    devices: tuple[str, ...]
    cdi_devices: tuple[str, ...]
    mounts: tuple[tuple[str, str, str], ...]
    environ: Mapping[str, str]
    command: tuple[str, ...]


@dataclass(frozen=True)
class Replica:
    """One engine instance as found running: its processes, GPUs and buffers. `name` is the container's, unit's or title's.

    `ranks`: those of `pids` that hold GPU memory or map a shared nccl- file, in rank order (helpers such as a
    detokenizer are in `pids` alone). `port` is the command line's, None where it does not name one.
    """

    name: str
    engine: Optional[Engine]
    pids: tuple[int, ...]
    gpus: tuple[str, ...]
    sockets: tuple[int, ...]
    container: Optional[str]
    unit: Optional[str]
    buffers: tuple[Buffer, ...]
    ranks: tuple[int, ...] = ()
    port: Optional[int] = None


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
