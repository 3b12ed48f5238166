"""Which starts a probe makes, in which order: as configured, a contrast, a sweep, a lottery. Pure."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model import nccldebug
from nearsocket.model.errors import UsageError
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.starts import FOLDER, StartOrder
from nearsocket.model.text import one_line

CONFIGURED, NAIVE, NEAR, FAR = "as configured", "naive", "forced near", "forced far"
#: NCCL's log of a start without a container: what proves transports and where cuMem's buffers lie.
LOG: Mapping[str, str] = nccldebug.variables(f"{FOLDER}/log")
#: With cuMem NCCL allocates near whatever binds the ranks: what is forced or left to chance is the file in /dev/shm.
_FILES = {"NCCL_CUMEM_ENABLE": "0"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MOST = 64


class Binding(str, enum.Enum):
    """What holds the ranks' memory: what the replica has, nothing, or nodes that are forced on them."""

    CONFIGURED = "configured"
    NAIVE = "naive"
    NEAR = "near"
    FAR = "far"


@dataclass(frozen=True)
class Base:
    """What all starts of a probe share. `argv`: the container's words for each binding (empty: bare, the ranks bind themselves);
    `far`: the nodes with memory that are near no rank's GPU; `shm`: as in a start's order, for starts as configured.
    """

    backend: Backend
    places: tuple[Place, ...]
    sizes: tuple[int, ...]
    rounds: int = 5
    budget_s: float = 0.2
    limit_s: float = 300.0
    environment: Mapping[str, str] = field(default_factory=dict)
    far: tuple[int, ...] = ()
    argv: Mapping[Binding, tuple[str, ...]] = field(default_factory=dict)
    python: str = ""
    runtime: str = ""
    container: str = ""
    shm: str = ""


def start(
    base: Base, name: str, number: int, binding: Binding = Binding.CONFIGURED, more: Optional[Mapping[str, str]] = None
) -> StartOrder:
    """One start under that name; `more`: variables on top."""
    files = {} if binding is Binding.CONFIGURED else _FILES
    places = base.places
    if binding is not Binding.CONFIGURED:
        places = tuple(dataclasses.replace(place, bind=_bind(base, place, binding)) for place in places)
    environment = {**LOG, **base.environment, **files, **(more or {})}
    return StartOrder(
        name,
        RanksOrder(base.backend, places, base.sizes, base.rounds, base.budget_s, base.limit_s, environment),
        base.argv.get(binding, ()),
        base.python,
        base.runtime,
        f"{base.container}-{number}" if base.container else "",
        shm=base.shm if binding is Binding.CONFIGURED else "",
    )


def _bind(base: Base, place: Place, binding: Binding) -> tuple[int, ...]:
    """What a rank binds itself to: a container's is held from outside."""
    if base.argv or binding is Binding.NAIVE:
        return ()
    return place.near if binding is Binding.NEAR else base.far


def contrast(base: Base, number: int = 1) -> tuple[StartOrder, ...]:
    """Near, far, near, far: in turn, so that a host that warms up does not decide. Raises UsageError where nothing can be far."""
    if not base.far:
        raise UsageError("--contrast: expected a node with memory away from the GPUs, found none: nothing can be far here")
    if not all(place.near for place in base.places):
        raise UsageError("--contrast: expected to know the nodes near every GPU, found one whose node is not known", "--near NODES")
    order = ((NEAR, Binding.NEAR), (FAR, Binding.FAR)) * 2
    return tuple(start(base, name, number + at, binding) for at, (name, binding) in enumerate(order))


def sweep_settings(words: Iterable[str]) -> tuple[Mapping[str, str], ...]:
    """`NCCL_PROTO=LL,Simple` and `NCCL_CUMEM_ENABLE=0,1` as all their combinations, in order. Raises UsageError."""
    names, choices = [], []
    for word in words:
        name, equals, values = word.partition("=")
        found = [value for value in values.split(",") if value]
        if not equals or not _NAME.match(name) or not found or name in names:
            raise UsageError(f"--sweep: expected NAME=VALUE,VALUE with each name once, found {one_line(word, 60)!r}")
        names.append(name)
        choices.append(found)
    made = tuple(dict(zip(names, values)) for values in itertools.product(*choices)) if names else ()
    if not 0 < len(made) <= _MOST:
        raise UsageError(f"--sweep: expected 1 to {_MOST} combinations, found {len(made)}")
    return made


def words(settings: Mapping[str, str]) -> str:
    """A combination as a name."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def sweep(base: Base, settings: Sequence[Mapping[str, str]], passes: int = 3, number: int = 1) -> tuple[StartOrder, ...]:
    """Every combination and the replica's own, once in each pass; each pass begins one further on, so that none is always first."""
    every: list[tuple[str, Mapping[str, str]]] = [(CONFIGURED, {}), *((words(one), one) for one in settings)]
    once = dataclasses.replace(base, rounds=1)
    found: list[StartOrder] = []
    for turn in range(passes):
        shift = turn % len(every)
        for name, values in every[shift:] + every[:shift]:
            found.append(start(once, name, number + len(found), more=values))
    return tuple(found)


def lottery(base: Base, draws: int, fill: Sequence[int], number: int = 1) -> tuple[StartOrder, ...]:
    """Each draw one start as configured and one naive, in turn; before each the `fill` nodes are filled with page cache."""
    once = dataclasses.replace(base, rounds=1)
    found: list[StartOrder] = []
    for _ in range(draws):
        for name, binding in ((CONFIGURED, Binding.CONFIGURED), (NAIVE, Binding.NAIVE)):
            found.append(dataclasses.replace(start(once, name, number + len(found), binding), fill=tuple(fill)))
    return tuple(found)
