"""What a group of ranks is told to do, `nearsocket.ranks/1`, as JSON between the host's program and the ranks. Pure."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import sizes
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.ranks/1"


class Lacking(NearsocketError):
    """What the ranks need is not there (torch, a GPU that torch sees): nothing was measured, and nothing is proven bad."""


class Backend(str, enum.Enum):
    """What adds the numbers up: NCCL on GPUs, gloo on CPUs (no placement), or the lab's stand-in for NCCL."""

    NCCL = "nccl"
    GLOO = "gloo"
    STANDIN = "standin"


@dataclass(frozen=True)
class Place:
    """One rank's place. `device`: its GPU as CUDA counts in that environment; `node`: the GPU's (None: not known).

    `near`: the nodes of the GPU's socket; `bind`: the nodes that the rank binds its memory and CPUs to before anything else
    (empty: as the process finds itself).
    """

    device: int
    pci: Optional[str] = None
    node: Optional[int] = None
    near: tuple[int, ...] = ()
    bind: tuple[int, ...] = ()


@dataclass(frozen=True)
class RanksOrder:
    """One start of a group of ranks. `rounds`: how often all sizes are gone through; `budget_s`: how long one size is timed
    in one round; `limit_s`: after how many seconds the group is ended, whatever it does.
    """

    backend: Backend
    ranks: tuple[Place, ...]
    sizes: tuple[int, ...] = sizes.DEFAULT
    rounds: int = 5
    budget_s: float = 0.2
    limit_s: float = 300.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON's own values."""
        return {"schema": SCHEMA, **dataclasses.asdict(self), "backend": self.backend.value}


def from_json(value: Any) -> RanksOrder:
    """The order that `to_json` made. Raises NearsocketError for anything else."""
    try:
        given = dict(value)
        if given.pop("schema") != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found another schema")
        places = []
        for one in given.pop("ranks"):
            places.append(Place(**dict(one, near=tuple(one["near"]), bind=tuple(one["bind"]))))
        given.update(backend=Backend(given["backend"]), sizes=tuple(given["sizes"]), ranks=tuple(places))
        return RanksOrder(**given)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}") from None


def to_line(value: Any) -> bytes:
    """One line of JSON in ASCII."""
    return json.dumps(value, ensure_ascii=True).encode("ascii") + b"\n"
