"""From the rows of ranks and rounds to one series a size, and which differences between series exceed the noise. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearsocket.model.probe.starts import Row

#: Two series that differ by less are the same, however quiet each of them was.
FLOOR = 0.03
#: What a series of one round is taken to be uncertain by: it shows no spread of its own.
ONE_ROUND = 0.10


@dataclass(frozen=True)
class Series:
    """One size. `rounds_us`: in each round the median of the slowest rank, since a collective is as slow as that; `p99_us`: the
    worst rank's and round's; `wrong`: elements that were wrong on any rank.
    """

    size_bytes: int
    ranks: int
    rounds_us: tuple[float, ...]
    p99_us: float
    wrong: int = 0

    @property
    def median_us(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds_us)

    @property
    def width(self) -> float:
        """The rounds' whole range as a share of their median: what a difference is measured against."""
        if len(self.rounds_us) < 2:
            return ONE_ROUND
        return (max(self.rounds_us) - min(self.rounds_us)) / self.median_us if self.median_us else 0.0

    @property
    def bus_gb_s(self) -> float:
        """Bus bandwidth in GB/s: what each link carries, 2 (n - 1) / n of the size in that time (nccl-tests, PERFORMANCE.md)."""
        if not self.median_us:
            return 0.0
        return 2 * (self.ranks - 1) / self.ranks * self.size_bytes / self.median_us / 1e3


def from_value(value: Mapping[str, Any]) -> Series:
    """From JSON's own values. Raises TypeError, ValueError, KeyError."""
    return Series(**{**value, "rounds_us": tuple(float(us) for us in value["rounds_us"])})


@dataclass(frozen=True)
class Difference:
    """One series against another of its size. `ratio`: time by time, above 1 where the first is slower; `noise`: the share below
    which a difference means nothing; `exceeds`: it is larger than the noise and the two ranges do not meet.
    """

    size_bytes: int
    ratio: float
    noise: float
    exceeds: bool


def of_rows(rows: Iterable[Row]) -> tuple[Series, ...]:
    """One series for each size, ascending, from the rows of one start."""
    return of_starts([tuple(rows)])


def of_starts(starts: Sequence[Sequence[Row]]) -> tuple[Series, ...]:
    """One series for each size from several starts of the same thing: each start's rounds count as rounds."""
    cells: dict[int, dict[tuple[int, int], list[Row]]] = {}
    for number, rows in enumerate(starts):
        for row in rows:
            cells.setdefault(row.size_bytes, {}).setdefault((number, row.round), []).append(row)
    return tuple(_series(size, cells[size]) for size in sorted(cells))


def _series(size: int, rounds: Mapping[tuple[int, int], Sequence[Row]]) -> Series:
    every = [row for rows in rounds.values() for row in rows]
    return Series(
        size,
        len({row.rank for row in every}),
        tuple(max(row.median_us for row in rounds[key]) for key in sorted(rounds)),
        max(row.p99_us for row in every),
        sum(row.wrong for row in every),
    )


def compare(one: Series, other: Series) -> Difference:
    """The first against the second. Both have the same size."""
    ratio = one.median_us / other.median_us if other.median_us else 1.0
    noise = max(FLOOR, one.width, other.width)
    apart = min(one.rounds_us) > max(other.rounds_us) or max(one.rounds_us) < min(other.rounds_us)
    return Difference(one.size_bytes, ratio, noise, apart and abs(ratio - 1) > noise)


def compare_all(these: Iterable[Series], others: Iterable[Series]) -> tuple[Difference, ...]:
    """Size by size, those that both have."""
    known = {one.size_bytes: one for one in others}
    return tuple(compare(one, known[one.size_bytes]) for one in these if one.size_bytes in known)


def microseconds(number: float) -> str:
    """`8.31 us`, `2.30 ms`: three digits that matter."""
    value, unit = (number / 1e3, "ms") if number >= 1e3 else (number, "us")
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}"
