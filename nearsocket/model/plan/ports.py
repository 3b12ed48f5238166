"""Which port each replica listens on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearsocket.model.host import Engine
from nearsocket.model.plan.values import Refusal
from nearsocket.model.settings import ReplicaSettings

#: The engines' own default ports.
FIRST = {Engine.SGLANG: 30000, Engine.VLLM: 8000}


@dataclass(frozen=True)
class Port:
    """A port and why it is this one."""

    number: int
    reason: str


def assign(replicas: Sequence[ReplicaSettings]) -> tuple[Mapping[str, Port], list[Refusal]]:
    """Each replica's port: as asked, else the first free one from the engine's own default on; and ports that two asked for."""
    given: dict[str, Port] = {}
    taken: dict[int, str] = {}
    refusals: list[Refusal] = []
    for replica in replicas:
        if replica.port is None:
            continue
        given[replica.name] = Port(replica.port, "as asked")
        other = taken.setdefault(replica.port, replica.name)
        if other != replica.name:
            refusals.append(
                Refusal(replica.name, f"port {replica.port} is already replica {other}'s", "give each replica its own port")
            )
    for replica in replicas:
        if replica.port is not None:
            continue
        first = FIRST[replica.engine]
        number = next(port for port in range(first, first + len(replicas) + 1) if port not in taken)
        taken[number] = replica.name
        given[replica.name] = Port(number, f"the first free one from {replica.engine.value}'s default {first} on")
    return given, refusals
