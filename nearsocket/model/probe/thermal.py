"""When GPUs are too warm to begin, and when to end: a throttled card measures the room. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

#: NVML's words (collect/nvml.py) for a card that slows itself down.
SLOWED = frozenset({"hw-slowdown", "sw-thermal-slowdown", "hw-thermal-slowdown", "hw-power-brake-slowdown"})


@dataclass(frozen=True)
class Limits:
    """Degrees Celsius and seconds. `start_c`: every GPU is at most that warm before the first prompt, waited for `wait_s`;
    `abort_c`: at that temperature of one GPU the run ends.
    """

    start_c: int = 65
    abort_c: int = 85
    wait_s: float = 300.0


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Heat:
    """One GPU: its temperature, and NVML's reasons why its clocks are lower than they could be."""

    gpu: str
    celsius: int
    reasons: tuple[str, ...] = ()


def too_warm_to_start(heat: Sequence[Heat], limits: Limits) -> Optional[str]:
    """Which GPU, and how warm; None where all may begin."""
    warmest = max(heat, key=lambda one: one.celsius, default=None)
    if warmest is None or warmest.celsius <= limits.start_c:
        return None
    return f"GPU {warmest.gpu} has {warmest.celsius} C, expected at most {limits.start_c} C to begin"


def must_end(heat: Sequence[Heat], limits: Limits) -> Optional[str]:
    """Why to end now; None where all is well."""
    for one in heat:
        if one.celsius >= limits.abort_c:
            return f"GPU {one.gpu} has {one.celsius} C, expected less than {limits.abort_c} C"
        slowed = SLOWED.intersection(one.reasons)
        if slowed:
            return f"GPU {one.gpu} slows down ({min(slowed)}) at {one.celsius} C"
    return None
