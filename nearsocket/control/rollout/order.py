"""Who comes when: hosts in the inventory's order, the first of them alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Host = TypeVar("Host")


def batches(hosts: Sequence[Host], max_unavailable: int = 1, idle: int = 0) -> tuple[tuple[Host, ...], ...]:
    """The canary alone, then as many at a time as may be unavailable; every host once, in its order. `idle`: so many of the first
    have nothing to be done to them: a change is tried on none of these, so the canary is the next."""
    canary = (tuple(hosts[idle : idle + 1]),) if hosts[idle:] else ()
    return (*_cut(hosts[:idle], max_unavailable), *canary, *_cut(hosts[idle + 1 :], max_unavailable))


def _cut(hosts: Sequence[Host], most: int) -> list[tuple[Host, ...]]:
    return [tuple(hosts[at : at + most]) for at in range(0, len(hosts), most)]
