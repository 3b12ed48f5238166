"""One rank of a group: goes through the sizes, checks every element, times, and keeps its communicator until it is told to end."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Callable, Optional, Protocol

from nearsocket.model.probe.order import RanksOrder
from nearsocket.model.probe.sizes import within

#: Calls before the first that counts: connections are made lazily, clocks go up.
WARM_UP = 5
#: Calls of one size in one round, at least and at most.
FEWEST, MOST = 5, 400
#: A size needs the buffer, three of its size to make and compare it, and the library's own: this share of the free memory.
SHARE_OF_FREE = 0.2

Say = Callable[[Any], None]


class Backend(Protocol):
    """What adds up. Sizes in bytes, times in seconds."""

    def start(self) -> None:
        """Make the communicator."""

    def facts(self) -> dict[str, Any]:
        """Versions and names, for the report."""

    def free_bytes(self) -> int:
        """Memory that is free for buffers."""

    def least(self, number: float) -> float:
        """The least that any rank has."""

    def fill(self, size: int) -> None:
        """A buffer of that size with this rank's pattern."""

    def zero(self) -> None:
        """Only zeros in the buffer."""

    def wrong(self, zeros: bool) -> tuple[int, Optional[int]]:
        """How many elements are not what the sum must be (or not zero), and the first of them."""

    def times(self, count: int) -> list[float]:
        """Add up that many times, each timed."""


def work(order: RanksOrder, rank: int, backend: Backend, say: Say) -> None:
    """Measure all sizes in all rounds, a line said for each; the last line is `done`. Raises what the backend raises."""
    say({"at": "start"})
    backend.start()
    sharing = sum(place.device == order.ranks[rank].device for place in order.ranks)
    largest = int(backend.least(backend.free_bytes() * SHARE_OF_FREE / sharing))
    chosen = within(order.sizes, largest)
    say({"facts": backend.facts(), "capped_bytes": largest if len(chosen) < len(order.sizes) else None})
    for number in range(order.rounds):
        for size in chosen:
            say({"at": f"round {number + 1}, {size} bytes"})
            say({"row": {"rank": rank, "round": number, "size_bytes": size, **_one(order, backend, size)}})
    say({"done": True})


def _one(order: RanksOrder, backend: Backend, size: int) -> dict[str, Any]:
    backend.fill(size)
    backend.times(1)
    faults = [backend.wrong(zeros=False)]
    backend.zero()
    # Zeros stay zeros however often they are added up, so that the timed calls can be checked too.
    warm = backend.times(WARM_UP)
    slowest = -backend.least(-statistics.median(warm))
    count = int(min(MOST, max(FEWEST, order.budget_s / max(slowest, 1e-7))))
    times = backend.times(count)
    faults.append(backend.wrong(zeros=True))
    backend.fill(size)
    backend.times(1)
    faults.append(backend.wrong(zeros=False))
    first = next((place for number, place in faults if number), None)
    return {"count": count, **summary(times), "wrong": sum(number for number, _ in faults), "first_wrong": first}


def summary(times: Sequence[float]) -> dict[str, float]:
    """Median, p99, least and mean of times in seconds, as microseconds."""
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)]
    found = {"median_us": statistics.median(ordered), "p99_us": p99, "min_us": ordered[0], "mean_us": statistics.fmean(ordered)}
    return {name: round(seconds * 1e6, 3) for name, seconds in found.items()}
