"""What an import finds: replicas as a fleet file has them, and what could not be carried over, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearsocket.model.host import Engine
from nearsocket.model.settings import Runtime


@dataclass(frozen=True)
class Left:
    """What of `subject` (an engine by its container's or unit's name) is not in the fleet file, and why. Both one line."""

    subject: str
    what: str
    reason: str


@dataclass(frozen=True)
class Found:
    """One engine, as a replica. `command` empty: the plan's own. `secrets`: variable to the file that is to hold its value.

    `origin`: where it comes from, in words: a container, and the unit or compose file that runs it.
    """

    name: str
    container: str
    origin: str
    engine: Engine
    runtime: Runtime
    image: str
    gpus: tuple[str, ...]
    model: str
    port: int
    listen: str
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    nccl: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    shm_bytes: int | None = None
    memlock_bytes: int | None = None


@dataclass(frozen=True)
class Import:
    """One host's engines. `lost`: engines that could not become a replica at all (they are in `left` too)."""

    host: str
    found: tuple[Found, ...] = ()
    left: tuple[Left, ...] = ()
    lost: int = 0
