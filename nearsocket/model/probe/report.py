"""What a probe of one replica (or one set of GPUs) came to, for the renderers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Finding
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.lottery import Draw
from nearsocket.model.probe.prefill import Reading
from nearsocket.model.probe.series import Series

SCHEMA = "nearsocket.probe/1"


@dataclass(frozen=True)
class ProbeReport:
    """One host and subject. `kind`: allreduce, lottery or prefill. `tables`: what ran (as configured, forced near, a setting of a
    sweep ...) to its series; `facts`: each rank's versions; `known`: the baseline that the host has under the key;
    `capped_bytes`: the largest size that the free memory let in, where it left some out; `readings`: the prompts of a prefill;
    `unkept`: why a baseline that was to be kept was not.
    """

    host: str
    subject: str
    kind: str
    findings: tuple[Finding, ...]
    tables: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)
    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    key: Optional[Key] = None
    known: Optional[Baseline] = None
    capped_bytes: Optional[int] = None
    draws: tuple[Draw, ...] = ()
    readings: tuple[Reading, ...] = ()
    near: bool = False
    sweep: bool = False
    unkept: Optional[NearsocketError] = None
