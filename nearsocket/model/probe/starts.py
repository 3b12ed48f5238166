"""What a server's program is asked to start and what came of it: `nearsocket.probe-order/1`, `nearsocket.probe-starts/1`. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import order, sizes
from nearsocket.model.probe.order import RanksOrder
from nearsocket.model.snapshot import Snapshot, SnapshotError
from nearsocket.model.snapshot import from_json as snapshot_from_json
from nearsocket.model.text import one_line

ORDER, ANSWER = "nearsocket.probe-order/1", "nearsocket.probe-starts/1"
#: In words of a command and values of variables: the folder of this start on the server, which holds `env` and `log/`.
FOLDER = "@FOLDER@"
#: In words of a command: the container's name of this start.
NAME = "@NAME@"


@dataclass(frozen=True)
class StartOrder:
    """One start. `argv`: what runs Python in the engine's image (empty: `python` here, with no container); the program's own words
    come behind it. `container`: its name and `runtime` the command that removes it; empty without one. `fill`: nodes whose free
    memory is taken by page cache first (empty: none). `shm`: options of a tmpfs in the start's folder, `shm`, which the ranks have
    as their /dev/shm (empty: none is made).
    """

    name: str
    ranks: RanksOrder
    argv: tuple[str, ...] = ()
    python: str = ""
    runtime: str = ""
    container: str = ""
    fill: tuple[int, ...] = ()
    shm: str = ""

    def to_value(self) -> dict[str, Any]:
        """JSON's own values."""
        return {**dataclasses.asdict(self), "ranks": self.ranks.to_json()}


def start_from_value(value: Mapping[str, Any]) -> StartOrder:
    """The start that `to_value` made. Raises NearsocketError, KeyError, TypeError, ValueError."""
    return StartOrder(**dict(value, ranks=order.from_json(value["ranks"]), argv=tuple(value["argv"]), fill=tuple(value["fill"])))


@dataclass(frozen=True)
class ProbeOrder:
    """Starts one after the other. `look`: read the host while each group holds its communicator."""

    starts: tuple[StartOrder, ...]
    look: bool = True

    def to_json(self) -> bytes:
        """One line."""
        return order.to_line({"schema": ORDER, "starts": [one.to_value() for one in self.starts], "look": self.look})

    @property
    def limit_s(self) -> float:
        """Seconds that all starts may take, each with its time to start, to be looked at and to end."""
        return sum(one.ranks.limit_s + (FILL_S if one.fill else 0) + AROUND_S for one in self.starts)


#: Around a start: the look, the container's end; and to fill a node.
AROUND_S, FILL_S = 150.0, 180.0


@dataclass(frozen=True)
class Row:
    """One size in one round as one rank timed it. `wrong`: elements that were not the sum, in all checks together."""

    rank: int
    round: int
    size_bytes: int
    count: int
    median_us: float
    p99_us: float
    min_us: float
    mean_us: float
    wrong: int
    first_wrong: Optional[int]


@dataclass(frozen=True)
class Started:
    """What came of one start. `failed`: why it did not end well, one line; `failed_rank` whose fault it was (None: not known).

    `facts`: each rank's versions; `pids`: the ranks as their parent counts (a container's own numbers); `words`: the end of what
    was written on standard error; `seen`: the host while the group held its communicator. `lacks`: it failed for lack of something.
    """

    name: str
    rows: tuple[Row, ...] = ()
    facts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    failed: Optional[str] = None
    failed_rank: Optional[int] = None
    capped_bytes: Optional[int] = None
    pids: tuple[int, ...] = ()
    words: str = ""
    took_s: float = 0.0
    seen: Optional[Snapshot] = None
    lacks: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON's own values."""
        value = dataclasses.asdict(dataclasses.replace(self, seen=None))
        value["facts"] = {str(rank): dict(facts) for rank, facts in self.facts.items()}
        value["seen"] = json.loads(self.seen.to_json(indent=None)) if self.seen is not None else None
        return value


def answer(starts: Sequence[Started]) -> bytes:
    """What the server's program prints: one line."""
    return order.to_line({"schema": ANSWER, "starts": [one.to_json() for one in starts]})


def order_from_json(text: str) -> ProbeOrder:
    """The order that `to_json` wrote. Raises NearsocketError for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value["schema"] != ORDER:
            raise NearsocketError(f"expected {ORDER}, found another schema", "use one version of nearsocket on both sides")
        return ProbeOrder(tuple(map(start_from_value, value["starts"])), bool(value["look"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {ORDER}, found: {one_line(str(error), 100)}") from None


def answer_from_json(text: str) -> tuple[Started, ...]:
    """The answer that `answer` wrote. Raises NearsocketError for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value["schema"] != ANSWER:
            raise NearsocketError(f"expected {ANSWER}, found another schema", "use one version of nearsocket on both sides")
        return tuple(_started(one) for one in value["starts"])
    except (KeyError, TypeError, ValueError, AttributeError, SnapshotError) as error:
        raise NearsocketError(f"expected {ANSWER}, found: {one_line(str(error), 100)}") from None


def _started(value: Mapping[str, Any]) -> Started:
    given = dict(value)
    given["rows"] = tuple(row(one) for one in given["rows"])
    given["facts"] = {int(rank): facts for rank, facts in given["facts"].items()}
    given["pids"] = tuple(given["pids"])
    given["seen"] = None if given["seen"] is None else snapshot_from_json(json.dumps(given["seen"]))
    return Started(**given)


def row(value: Mapping[str, Any]) -> Row:
    """One row as a rank said it. Raises TypeError, ValueError for anything else."""
    made = Row(**value)
    for name in ("rank", "round", "size_bytes", "count", "wrong"):
        if type(getattr(made, name)) is not int or getattr(made, name) < 0:
            raise ValueError(f"{name}: expected a whole number")
    for name in ("median_us", "p99_us", "min_us", "mean_us"):
        number = getattr(made, name)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < 1e15:
            raise ValueError(f"{name}: expected microseconds")
    return made


def incomplete(ranks: RanksOrder, rows: Sequence[Row], capped_bytes: Optional[int]) -> Optional[str]:
    """What of the figures is missing, in words; None where every rank told every round of every size that fits."""
    chosen = ranks.sizes if capped_bytes is None else sizes.within(ranks.sizes, capped_bytes)
    wanted = [(rank, turn, size) for rank in range(len(ranks.ranks)) for turn in range(ranks.rounds) for size in chosen]
    told = {(row.rank, row.round, row.size_bytes) for row in rows}
    missing = [one for one in wanted if one not in told]
    if not missing:
        return None
    rank, turn, size = missing[0]
    return (
        f"expected figures of {len(ranks.ranks)} ranks, {ranks.rounds} rounds and {len(chosen)} sizes ({len(wanted)}), found "
        f"{len(wanted) - len(missing)}; rank {rank} told nothing of {sizes.render(size)} in round {turn + 1}"
    )
