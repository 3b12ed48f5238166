"""What a person asks for on one host, as frozen values: the planner takes these and a host, nothing else."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.host import Engine
from nearsocket.model.places import METRICS
from nearsocket.model.probe.order import Backend

GIB = 1 << 30
#: The cap of a replica's /dev/shm. tmpfs takes only what is written; NCCL and the engine's own queues stay far below.
SHM_CAP_BYTES = 16 * GIB


class Runtime(str, enum.Enum):
    """What runs the containers."""

    DOCKER = "docker"
    PODMAN = "podman"


class Layer(str, enum.Enum):
    """One way to hold a replica's memory near by force (FIELD_NOTES: which holds where, and what it needs)."""

    SHM = "shm"
    CPUSET = "cpuset"
    NUMACTL = "numactl"
    CUMEM = "cumem"
    PER_RANK = "per-rank"


class Relief(str, enum.Enum):
    """How page cache is taken off the near nodes before a start."""

    AUTO = "auto"
    DROP = "drop"
    NEAR = "near"
    WEIGHTS = "weights"
    NONE = "none"


class OnChange(str, enum.Enum):
    """What a start does where the nodes are no longer those of the plan (a BIOS flip of SNC or NPS)."""

    UNBOUND = "unbound"
    REFUSE = "refuse"


class Adopt(str, enum.Enum):
    """What becomes of an engine that runs already on a replica's GPUs: it is looked at and nothing more, it is handed over when it
    next stops, or it is stopped and taken over now."""

    OBSERVE = "observe"
    NEXT_RESTART = "next-restart"
    NOW = "now"


class OnFar(str, enum.Enum):
    """What a start does where its buffers are proven far: say so, stop, or start anew."""

    WARN = "warn"
    FAIL = "fail"
    RESTART = "restart"


class BeforeStart(str, enum.Enum):
    """Whether a replica's GPUs add up once before a start that is new in image, driver, environment or host."""

    AUTO = "auto"
    NEVER = "never"


@dataclass(frozen=True)
class PathSettings:
    """How the path between a replica's GPUs is proven before a start. `limit_s`: after how many seconds the ranks are ended."""

    before_start: BeforeStart = BeforeStart.AUTO
    backend: Backend = Backend.NCCL
    limit_s: int = 120


@dataclass(frozen=True)
class Verify:
    """How a start is proven. `request`: send the engine one, so that NCCL connects; `api_key`: the secret's name that it wants.

    `timeout_s` holds for the whole proof, behind health. `metrics`: the folder for Prometheus text on the server.
    """

    policy: OnFar = OnFar.WARN
    request: bool = True
    api_key: Optional[str] = None
    timeout_s: int = 180
    metrics: str = METRICS


@dataclass(frozen=True)
class GpuChoice:
    """The GPUs that a replica asks for: `wanted` by index or PCI address, or `count` of them, chosen by the plan."""

    wanted: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Image:
    """An image by digest. `numactl`: the image has that program; `nccl` and `release` are its versions, None where not stated."""

    reference: str
    numactl: bool = True
    nccl: Optional[str] = None
    release: Optional[str] = None
    patch: Optional[str] = None

    @property
    def digest(self) -> str:
        """`sha256:...`."""
        return self.reference.rpartition("@")[2]


@dataclass(frozen=True)
class Limits:
    """Time in seconds and sizes in bytes. `start_s` is longer than a measured load, `stop_s` longer than a measured drain."""

    start_s: int = 1800
    stop_s: int = 120
    restarts: int = 3
    restart_delay_s: int = 30
    memlock_bytes: Optional[int] = None
    shm_bytes: Optional[int] = None
    cpus: Optional[int] = None


@dataclass(frozen=True)
class Hooks:
    """Programs on the server, with their arguments: `drain` before a replica stops, `undrain` once it serves."""

    drain: tuple[str, ...] = ()
    undrain: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplicaSettings:
    """One engine instance. `binding` None means that the plan chooses; an empty set means none.

    `secrets`: variable name to the path of a file on the server that holds its value. `host_memory_bytes`: what the engine
    takes of host memory at most (pinned memory, a host cache), as declared; None where nobody said.
    """

    name: str
    engine: Engine
    image: Image
    gpus: GpuChoice
    model: str
    runtime: Runtime = Runtime.DOCKER
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    nccl: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    port: Optional[int] = None
    listen: str = "127.0.0.1"
    health: str = "/health"
    binding: Optional[frozenset[Layer]] = None
    relief: Relief = Relief.AUTO
    on_change: OnChange = OnChange.UNBOUND
    host_memory_bytes: Optional[int] = None
    limits: Limits = Limits()
    hooks: Hooks = Hooks()
    adopt: Optional[Adopt] = None
    verify: Verify = Verify()
    probe: PathSettings = PathSettings()


@dataclass(frozen=True)
class TuneSettings:
    """Host-wide settings; None means: only audited, never written. `updates`: `leave` or `blacklist`."""

    numa_balancing: Optional[int] = None
    zone_reclaim_mode: Optional[int] = None
    swappiness: Optional[int] = None
    transparent_hugepages: Optional[str] = None
    updates: Optional[str] = None


@dataclass(frozen=True)
class Settings:
    """What is asked for on one host. `reserved_cores`: cores of each socket that no replica gets (None: the plan's rule)."""

    replicas: tuple[ReplicaSettings, ...] = ()
    tune: TuneSettings = TuneSettings()
    reserved_cores: Optional[int] = None
