"""A plan: where each replica goes, what holds it there, and why; or the reasons why it cannot be."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.plan.eligibility import PatchVerdict
from nearsocket.model.plan.fingerprint import Fingerprint
from nearsocket.model.settings import Adopt, Layer, ReplicaSettings, Settings


class Gate(str, enum.Enum):
    """How a container is given its GPUs: CDI devices by UUID or by index, or Docker's `--gpus`."""

    CDI_UUID = "cdi-uuid"
    CDI_INDEX = "cdi-index"
    GPUS = "gpus"


@dataclass(frozen=True)
class Decision:
    """One thing that the plan decided: `what`, the `choice` and the `reason`, each one line."""

    what: str
    choice: str
    reason: str


@dataclass(frozen=True)
class Refusal:
    """Why a replica (or the host, `subject` is its name) cannot be placed, and what to do; both one line."""

    subject: str
    reason: str
    hint: str


@dataclass(frozen=True)
class GpuPlace:
    """One GPU of a replica. `index` and `uuid` are as NVML said when the snapshot was taken; the address is what counts."""

    pci: str
    index: Optional[int]
    uuid: Optional[str]
    node: Optional[int]
    socket: Optional[int]


@dataclass(frozen=True)
class ShmMount:
    """The tmpfs that becomes the replica's /dev/shm: its mount point on the server, its cap, the nodes of `mpol=bind:`."""

    point: str
    size_bytes: int
    nodes: frozenset[int]


@dataclass(frozen=True)
class LayerState:
    """A binding layer: whether the plan uses it, and why or why not."""

    layer: Layer
    used: bool
    reason: str


@dataclass(frozen=True)
class ReplicaPlan:
    """Where one replica goes. `near`: the nodes of its GPUs' sockets that have CPUs and memory.

    `memory_nodes`: those that its memory or its /dev/shm is bound to (empty: none). `ranks`: each GPU's own near node
    in rank order, for an engine that binds rank by rank. `layers` holds all five, in their order.
    """

    settings: ReplicaSettings
    gpus: tuple[GpuPlace, ...]
    sockets: tuple[int, ...]
    near: frozenset[int]
    memory_nodes: frozenset[int]
    cpus: frozenset[int]
    port: int
    gate: Gate
    layers: tuple[LayerState, ...]
    shm: Optional[ShmMount]
    shm_bytes: int
    ranks: tuple[int, ...]
    cumem: bool
    patch: PatchVerdict
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.settings.name

    def uses(self, layer: Layer) -> bool:
        """Whether that layer holds this replica."""
        return any(state.layer is layer and state.used for state in self.layers)


@dataclass(frozen=True)
class Plan:
    """The plan of one host: usable only where `refusals` is empty. `decisions` are the host's own.

    `sysctl` and `transparent_hugepages` are what was opted into and is not tuned's."""

    host: str
    taken_at: str
    settings: Settings
    replicas: tuple[ReplicaPlan, ...]
    fingerprint: Fingerprint
    refusals: tuple[Refusal, ...] = ()
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()
    sysctl: Mapping[str, str] = field(default_factory=dict)
    transparent_hugepages: Optional[str] = None

    @property
    def managed(self) -> tuple[ReplicaPlan, ...]:
        """The replicas that something is written for: not those that are only observed."""
        return tuple(replica for replica in self.replicas if replica.settings.adopt is not Adopt.OBSERVE)

    @property
    def refused(self) -> bool:
        """Whether the plan cannot be carried out."""
        return bool(self.refusals)
