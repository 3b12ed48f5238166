"""Figures of two ranks as a probe brings them, and what was asked of the ranks."""

from __future__ import annotations

from nearsocket.model.probe.baseline import Key
from nearsocket.model.probe.lottery import Draw
from nearsocket.model.probe.order import Backend, Place
from nearsocket.model.probe.place import Where
from nearsocket.model.probe.planning import Base
from nearsocket.model.probe.series import Series
from nearsocket.model.probe.starts import Row, Started

KEY = Key("sha256:ab", "595.45", "2.30.7", "engine@sha256:cd", "nccl", ("0000:c1:00.0", "0000:c2:00.0"))
BASE = Base(Backend.NCCL, (Place(0, node=1, near=(1,)), Place(1, node=1, near=(1,))), (12 << 10, 48 << 20), far=(0,))


def rows(time: float = 10.0, wrong: int = 0, size: int = 48 << 20, rounds: int = 3) -> tuple[Row, ...]:
    """What both ranks measured of one size, microseconds; each round a little slower."""
    return tuple(
        Row(rank, number, size, 20, time + number / 100, 2 * time, time, time, wrong, 7 if wrong else None)
        for rank in (0, 1)
        for number in range(rounds)
    )


def series(*rounds: float, size: int = 48 << 20) -> Series:
    """One size's medians, a round each."""
    return Series(size, 2, rounds, max(rounds))


def draw(name: str, where: Where, time: float = 10.0, failed: str | None = None) -> Draw:
    """One start of a lottery, and where its buffers came to lie."""
    return Draw(name, where, Started(name, rows(time, rounds=1), failed=failed))
