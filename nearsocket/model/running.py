"""What runs on a machine: processes, their NCCL buffers, containers, and the replicas that they make up."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.machine import Mount


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
