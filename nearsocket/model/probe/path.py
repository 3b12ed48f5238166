"""Proving the path between a replica's GPUs before a start that is new: what is probed, when it is due, what came of it. Pure.

The probe proves the path; where the engine's own buffers land each start proves for itself (docs/verify.md).
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.probe import series, starts
from nearsocket.model.probe.series import Series, microseconds
from nearsocket.model.probe.sizes import render
from nearsocket.model.probe.starts import StartOrder

SCHEMA = "nearsocket.proven/1"
#: What makes a start new: its name in words, and the field that has it.
BASIS = {
    "image": "image",
    "driver": "driver",
    "environment": "environment",
    "fingerprint": "host",
    "gpus": "GPUs",
    "binding": "binding",
}
#: Variables that NCCL, CUDA and the loader of libraries read; the fault is the lab's.
_READ = ("NCCL_", "TORCH_NCCL_", "CUDA_", "NVIDIA_", "GLOO_", "LD_", "NEARSOCKET_PROBE_")
#: Where the log goes and how much is in it changes nothing on the path.
_LOG = "NCCL_DEBUG"


def environment_digest(environment: Mapping[str, str]) -> str:
    """One text for the variables that the path depends on: a record of it must not hold their values."""
    read = {name: value for name, value in environment.items() if name.startswith(_READ) and not name.startswith(_LOG)}
    text = json.dumps(read, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True)
class PathProbe:
    """One replica's probe. `start`: the ranks as its engine would run; the others are what a proof rests on: `environment` a
    digest, `fingerprint` the host's, `gpus` by PCI address in rank order, `binding` the words that bind. `near`: the user's word on
    the GPUs' nodes (None: as the host says).
    """

    replica: str
    start: StartOrder
    image: str
    driver: str
    environment: str
    fingerprint: str
    gpus: tuple[str, ...]
    binding: str
    near: Optional[tuple[int, ...]] = None

    @property
    def basis(self) -> Mapping[str, Any]:
        """What the proof rests on, as JSON's own values."""
        return {name: list(self.gpus) if name == "gpus" else getattr(self, name) for name in BASIS}


def to_value(probe: PathProbe) -> dict[str, Any]:
    """JSON's own values."""
    return {**dataclasses.asdict(probe), "start": probe.start.to_value()}


def from_value(value: Mapping[str, Any]) -> PathProbe:
    """From JSON's own values. Raises NearsocketError, KeyError, TypeError, ValueError."""
    near = None if value["near"] is None else tuple(value["near"])
    return PathProbe(**{**value, "start": starts.start_from_value(value["start"]), "gpus": tuple(value["gpus"]), "near": near})


def due(probe: PathProbe, proven: Optional[Mapping[str, Any]]) -> Optional[str]:
    """Why the path has to be proven, given the basis of the last proof (None: there is none); None where it need not be."""
    if proven is None:
        return "never proven"
    now = probe.basis
    new = [word for name, word in BASIS.items() if proven.get(name) != now[name]]
    return f"new {', '.join(new)}" if new else None


@dataclass(frozen=True)
class DueProbe:
    """A path to prove before `replica`'s unit starts, and why."""

    probe: PathProbe
    replica: ReplicaEntry
    reason: str


class Result(str, enum.Enum):
    """What a probe before a start came to: only BROKEN keeps an engine down."""

    PROVEN = "proven"
    BROKEN = "broken"
    UNKNOWN = "not proven"


@dataclass(frozen=True)
class Probed:
    """One probe before a start. `summary`: why, in one line; `sizes`: the figures; `notes`: what to look at although it starts."""

    replica: str
    result: Result
    summary: str
    sizes: tuple[Series, ...] = ()
    notes: tuple[str, ...] = ()
    took_s: float = 0.0

    def __str__(self) -> str:
        """One line for people."""
        figures = ", ".join(f"{render(one.size_bytes)} {microseconds(one.median_us)}" for one in self.sizes)
        return f"replica {self.replica} {self.result.value}: {self.summary}" + (f"; {figures}" if figures else "")


def probed_from(value: Mapping[str, Any]) -> Probed:
    """From JSON's own values. Raises KeyError, TypeError, ValueError."""
    sizes = tuple(map(series.from_value, value["sizes"]))
    return Probed(**{**value, "result": Result(value["result"]), "sizes": sizes, "notes": tuple(value["notes"])})
