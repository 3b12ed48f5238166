"""What a start of one replica needs to know on the server, `nearsocket.start/1`, and the variables that it sets. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model import programs, systemd
from nearsocket.model.errors import NearsocketError
from nearsocket.model.host import Engine, Gpu
from nearsocket.model.plan.values import Gate
from nearsocket.model.settings import OnChange, OnFar, Relief, Runtime, Verify
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.start/1"


@dataclass(frozen=True)
class Start:
    """One replica's start. `gpus`: PCI addresses in rank order; `near`: node list text; `shm_*`: None without a bound mount.

    `slice`: the control group that the container is in. `verify`: how the start is proven; `window_s`: the time in which systemd
    counts starts. `bound` and `unbound`: the values of RUN_BINDING, NUMACTL and ENGINE_BINDING on the plan's nodes and on
    others. `secrets`: variable name to a file on the server. Times in seconds.
    """

    replica: str
    runtime: Runtime
    container: str
    unit: str
    image: str
    gpus: tuple[str, ...]
    gate: Gate
    on_change: OnChange
    near: str
    relief: Relief
    relief_timeout_s: int
    model: str
    shm_point: Optional[str]
    shm_policy: Optional[str]
    bound: Mapping[str, str]
    unbound: Mapping[str, str]
    secrets: Mapping[str, str]
    health: str
    start_s: int
    engine: Engine = Engine.SGLANG
    slice: str = ""
    verify: Verify = field(default_factory=Verify)
    window_s: int = 7200

    def to_json(self) -> str:
        """Deterministic JSON text, one line feed at its end."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def from_json(text: str) -> Start:
    """The start that `to_json` wrote. Raises NearsocketError, one line, for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value.pop("schema") != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found another schema")
        value["gpus"] = tuple(value["gpus"])
        for key, kind in (("runtime", Runtime), ("gate", Gate), ("on_change", OnChange), ("relief", Relief)):
            value[key] = kind(value[key])
        if "engine" in value:  # a record of before 0.1 had no proof
            value["engine"] = Engine(value["engine"])
            value["verify"] = Verify(**{**value["verify"], "policy": OnFar(value["verify"]["policy"])})
        return Start(**value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}") from None


def gpu_words(gate: Gate, names: tuple[str, ...]) -> str:
    """The value of GPUS: `--device=nvidia.com/gpu=NAME ...`, or what follows `--gpus=`, quotes included (Docker reads CSV).

    `names`: UUIDs in the gates `cdi-uuid` and `gpus`, NVML indices in `cdi-index`.
    """
    if gate is Gate.GPUS:
        return f'"device={",".join(names)}"'
    return systemd.split(f"--device=nvidia.com/gpu={name}" for name in names)


def gpu_options(gate: Gate, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same as the runtime's own options, for whoever runs it without systemd."""
    words = gpu_words(gate, names)
    return (f"--gpus={words}",) if gate is Gate.GPUS else tuple(words.split())


def called(start: Start, gpus: Iterable[Gpu]) -> dict[str, Optional[str]]:
    """PCI address to what the replica's gate calls that GPU now: NVML's index, or its UUID; None where NVML does not name it."""
    by_index = start.gate is Gate.CDI_INDEX
    return {gpu.pci: (None if gpu.index is None else str(gpu.index)) if by_index else gpu.uuid for gpu in gpus}


def named(start: Start, called: Mapping[str, Optional[str]]) -> tuple[str, ...]:
    """How the replica's GPUs are called now, in rank order. `called`: by PCI address. Raises NearsocketError."""
    found = []
    for pci in start.gpus:
        name = called.get(pci)
        if name is None:
            raise NearsocketError(f"expected NVML to name GPU {pci}, found no answer", "see nvidia-smi -L and the kernel's log")
        found.append(name)
    return tuple(found)


def start_env(start: Start, names: tuple[str, ...], folder: str, unbound: bool) -> str:
    """The text of start.env. `names` as for `gpu_words`, now; `folder`: this start's own, where NCCL's logs go."""
    values = {**(start.unbound if unbound else start.bound)}
    values[programs.GPUS] = gpu_words(start.gate, names)
    values[programs.START_DIR] = folder
    return systemd.environment_file(values)
