"""Who comes when: hosts in the inventory's order, the first of them alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Host = TypeVar("Host")


def batches(hosts: Sequence[Host], max_unavailable: int = 1) -> tuple[tuple[Host, ...], ...]:
    """The canary alone, then as many at a time as may be unavailable; every host once, in its order."""
    rest = hosts[1:]
    after = [tuple(rest[at : at + max_unavailable]) for at in range(0, len(rest), max_unavailable)]
    return (tuple(hosts[:1]), *after) if hosts else ()
