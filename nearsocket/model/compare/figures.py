"""Measured times, before against after: slower beyond the noise is a regression, by the limits of a baseline. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nearsocket.model.compare.values import Change, Grade, Section
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.probe import baseline
from nearsocket.model.probe.baseline import FAIL_SHARE, WARN_SHARE, Baseline
from nearsocket.model.probe.report import SCHEMA
from nearsocket.model.probe.series import Series, compare_all, microseconds
from nearsocket.model.probe.sizes import render
from nearsocket.model.text import one_line

#: What was measured (`alpha: as configured`) to its sizes.
Figures = Mapping[str, Sequence[Series]]


def changes(before: Figures, after: Figures) -> Iterator[Change]:
    """A change for each thing that both sides measured and that differs: its worst size, or its best where none is slower."""
    for what in sorted(before.keys() & after.keys()):
        apart = [one for one in compare_all(after[what], before[what]) if one.exceeds]
        if not apart:
            continue
        slow = [one for one in apart if one.ratio - 1 >= WARN_SHARE]
        told = max(slow or apart, key=lambda one: one.ratio if slow else abs(one.ratio - 1))
        worse = Grade.FAIL if told.ratio - 1 >= FAIL_SHARE else Grade.WARN
        grade = worse if slow else Grade.BETTER if told.ratio < 1 else Grade.CHANGED
        old = next(one for one in before[what] if one.size_bytes == told.size_bytes)
        new = next(one for one in after[what] if one.size_bytes == told.size_bytes)
        size = f"all-reduce of {render(told.size_bytes)} ({len(slow or apart)} sizes {'slower' if slow else 'differ'})"
        yield Change(Section.FIGURES, grade, what, size, microseconds(old.median_us), microseconds(new.median_us))


def unpaired(before: Figures, after: Figures) -> Iterator[str]:
    """A note for each thing that one side alone measured, where both have figures: another image's are no comparison."""
    if before and after:
        for side, here, there in (("before", before, after), ("after", after, before)):
            for what in sorted(here.keys() - there.keys()):
                yield one_line(f"not compared: {what} was measured {side} alone", 300)


def of_baselines(kept: Iterable[Baseline]) -> dict[str, tuple[Series, ...]]:
    """The newest figures of each set of GPUs, image, backend and ranks' variables, whatever driver and NCCL: these change."""
    newest: dict[tuple[str, str, tuple[str, ...], str], Baseline] = {}
    for one in kept:
        where = (one.key.image, one.key.backend, one.key.gpus, one.key.environment)
        if where not in newest or newest[where].kept_at < one.kept_at:
            newest[where] = one
    return {
        one_line(
            f"baseline of {' '.join(one.key.gpus)} in {one.key.image} ({one.key.backend}, "
            f"variables {one.key.environment[:12] or 'not known'})",
            260,
        ): one.sizes
        for one in newest.values()
    }


def of_probe(text: str, host: str | None = None) -> dict[str, tuple[Series, ...]]:
    """The all-reduces of a `nearsocket.probe/1`, of that host alone where one is named. Raises UsageError for anything else."""
    try:
        whole = json.loads(text)
        if whole["schema"] != SCHEMA:
            raise UsageError(f"expected schema {SCHEMA}, found another", "name a file that nearsocket probe --json wrote")
        return {
            one_line(f"{probe['subject']}: {table['name']}", 200): tuple(_series(one) for one in table["sizes"])
            for probe in whole["probes"]
            for table in probe["measured"]
            if host is None or probe["host"] == host
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"expected a probe ({SCHEMA}), found: {one_line(str(error), 100)}") from None


def from_values(values: Any) -> tuple[Baseline, ...]:
    """The baselines that a snapshot holds as texts; one that cannot be read is left out."""
    found = []
    for text in values if isinstance(values, list) else []:
        try:
            found.append(baseline.from_json(text))
        except (NearsocketError, TypeError, RecursionError):
            continue  # a file that somebody else left there is no figure
    return tuple(found)


def _series(one: Mapping[str, Any]) -> Series:
    rounds = tuple(float(us) for us in one["rounds_us"])
    if not rounds or min(rounds) <= 0:
        raise ValueError("rounds_us: times above zero")
    return Series(int(one["size_bytes"]), 1, rounds, float(one["p99_us"]), int(one["wrong_elements"]))
