"""How sure a share is that was seen in a few draws: the exact interval of Clopper and Pearson (Biometrika 26, 1934). Pure."""

from __future__ import annotations

import math
from typing import Callable

CONFIDENCE = 0.95
_STEPS = 60


def interval(hits: int, draws: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The shares between which the true one lies with at least that confidence. Raises ValueError for an impossible count."""
    if not 0 <= hits <= draws or draws < 1 or not 0 < confidence < 1:
        raise ValueError(f"expected 0 to {draws} hits of at least one draw, found {hits}")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else _root(lambda share: at_least(hits, draws, share) - tail)
    high = 1.0 if hits == draws else _root(lambda share: tail - at_most(hits, draws, share))
    return low, high


def at_least(hits: int, draws: int, share: float) -> float:
    """The chance of that many hits or more, each draw a hit with this chance."""
    return math.fsum(_exactly(number, draws, share) for number in range(hits, draws + 1))


def at_most(hits: int, draws: int, share: float) -> float:
    """The chance of that many hits or fewer."""
    return math.fsum(_exactly(number, draws, share) for number in range(hits + 1))


def _exactly(hits: int, draws: int, share: float) -> float:
    if share in (0.0, 1.0):
        return float(hits == (draws if share else 0))
    ways = math.lgamma(draws + 1) - math.lgamma(hits + 1) - math.lgamma(draws - hits + 1)
    return math.exp(ways + hits * math.log(share) + (draws - hits) * math.log1p(-share))


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that rises from below to above zero crosses it."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
