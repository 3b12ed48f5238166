"""The restart lottery: where buffers landed over many starts, with how sure that is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown
from nearsocket.model.probe import planning
from nearsocket.model.probe.chance import CONFIDENCE, interval
from nearsocket.model.probe.place import Where
from nearsocket.model.probe.series import Series, microseconds, of_starts
from nearsocket.model.probe.sizes import render
from nearsocket.model.probe.starts import Started


@dataclass(frozen=True)
class Draw:
    """One start: as what it ran, where its buffers landed, and what it measured."""

    name: str
    where: Where
    started: Started


@dataclass(frozen=True)
class Share:
    """Draws of one kind. `low` and `high`: the shares between which that of `hits` lies, with 95 % confidence."""

    hits: int
    draws: int
    low: float
    high: float

    @property
    def words(self) -> str:
        """`3 of 20 (3 % to 38 %)`."""
        return f"{self.hits} of {self.draws} ({100 * self.low:.0f} % to {100 * self.high:.0f} %)"


def shares(draws: Iterable[Draw]) -> dict[Where, Share]:
    """For each place the share of draws that landed there; those that are not known are no draws. Empty without any."""
    counts = Counter(draw.where for draw in draws if draw.where in (Where.NEAR, Where.FAR, Where.SPLIT))
    total = sum(counts.values())
    return {
        where: Share(counts[where], total, *interval(counts[where], total))
        for where in (Where.NEAR, Where.FAR, Where.SPLIT)
        if total
    }


def off(draws: Sequence[Draw]) -> Share:
    """The share that did not land near. At least one draw must be known."""
    known = shares(draws)
    total = known[Where.NEAR].draws
    hits = total - known[Where.NEAR].hits
    return Share(hits, total, *interval(hits, total))


def latencies(draws: Iterable[Draw], where: Where) -> tuple[Series, ...]:
    """What the draws that landed there measured, each a round."""
    return of_starts([draw.started.rows for draw in draws if draw.where is where])


def judge(subject: str, draws: Sequence[Draw]) -> Finding:
    """`probe.lottery`: as configured, every start lands near; what the naive ones do says what the settings are worth."""
    ours = [draw for draw in draws if draw.name == planning.CONFIGURED]
    naive = [draw for draw in draws if draw.name == planning.NAIVE]
    evidence = [_counted(name, some) for name, some in ((planning.CONFIGURED, ours), (planning.NAIVE, naive)) if some]
    evidence += _times(draws)
    broken = [draw for draw in draws if draw.started.failed]
    if broken:
        why = broken[0].started.failed or ""
        return failed(subject, f"{len(broken)} of {len(draws)} draws did not end well: {why}", evidence, _LOOK)
    if ours and all(draw.where is Where.NONE for draw in draws):
        return not_applicable(subject, "the ranks exchange nothing through host memory: there is nothing to draw", evidence)
    unseen = [draw for draw in ours if draw.where is Where.UNKNOWN]
    if not shares(ours) or unseen:
        return unknown(subject, f"{len(unseen) or len(ours)} of {len(ours)} draws as configured were not seen", evidence, _AS_ROOT)
    mine = off(ours)
    beside = f"; naive {off(naive).words} not near" if shares(naive) else ""
    summary = f"as configured {mine.words} draws not near{beside}, {100 * CONFIDENCE:.0f} % confidence"
    if mine.hits:
        return failed(subject, summary, evidence, _BIND)
    return passed(subject, summary, evidence)


_LOOK = "nearsocket probe allreduce TARGET  # one start, with what it said"
_AS_ROOT = "run it as root on the host"
_BIND = "nearsocket plan INVENTORY  # which layers hold the replica, and why the others do not"


def _counted(name: str, draws: Sequence[Draw]) -> Evidence:
    counts = Counter(draw.where for draw in draws)
    said = ", ".join(f"{where.value} {counts[where]}" for where in Where if counts[where])
    return Evidence(name, f"{len(draws)} draws: {said}")


def _times(draws: Sequence[Draw]) -> list[Evidence]:
    found = []
    for where in (Where.NEAR, Where.FAR, Where.SPLIT):
        for one in latencies(draws, where)[-1:]:
            text = f"{microseconds(min(one.rounds_us))} to {microseconds(max(one.rounds_us))} over {len(one.rounds_us)} draws"
            found.append(Evidence(f"{where.value}, {render(one.size_bytes)}", text))
    return found
