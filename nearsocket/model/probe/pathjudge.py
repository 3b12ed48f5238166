"""Judging the probe before a start: a path that is proven bad stops the engine, what is not known never does. Pure."""

from __future__ import annotations

from typing import Optional

from nearsocket.model.finding import Finding, Status
from nearsocket.model.probe import allreduce, baseline, place
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.path import PathProbe, Probed, Result
from nearsocket.model.probe.series import of_rows
from nearsocket.model.probe.starts import Started

_BAD = (Status.WARN, Status.FAIL)


def key(probe: PathProbe, started: Started) -> Optional[Key]:
    """What the host's baseline of this path is kept under."""
    backend = probe.start.ranks.backend.value
    return baseline.key(probe.fingerprint, probe.driver, probe.image, backend, probe.gpus, probe.environment, started.facts)


def judge(probe: PathProbe, started: Started, known: Optional[Baseline]) -> Probed:
    """What one start of the ranks says of the path. `known`: the host's baseline, a slower run than which is a note."""
    subject, sizes = f"replica {probe.replica}", of_rows(started.rows)

    def said(result: Result, summary: str, *notes: str) -> Probed:
        return Probed(probe.replica, result, summary, sizes, notes, started.took_s)

    silent = started.failed_rank is None and not (started.rows or started.facts or started.pids)
    if started.failed is not None and (started.lacks or silent):
        return said(Result.UNKNOWN, f"it could not run: {started.failed}")
    sums = allreduce.judge(subject, started)
    if sums.status is not Status.PASS:
        return said(Result.BROKEN if sums.status is Status.FAIL else Result.UNKNOWN, sums.summary)
    near = None if probe.near is None else frozenset(probe.near)
    placed, _ = place.judge(subject, started, probe.start.ranks.backend, probe.start.container, near)
    if placed.status is Status.FAIL:
        return said(Result.BROKEN, f"its buffers: {placed.summary}")
    if placed.status is Status.UNKNOWN:
        return said(Result.UNKNOWN, f"every sum is right; where its buffers lay is not known: {placed.summary}")
    notes = [f"its buffers: {placed.summary}"] if placed.status is Status.WARN else []
    slow = _slower(probe, started, known)
    return said(Result.PROVEN, f"every element right, {_words(placed)}", *notes, *([slow.summary] if slow else []))


def _slower(probe: PathProbe, started: Started, known: Optional[Baseline]) -> Optional[Finding]:
    mine = key(probe, started)
    if mine is None or known is None:
        return None
    found = baseline.judge(f"replica {probe.replica}", mine, of_rows(started.rows), known)
    return found if found.status in _BAD else None


def _words(placed: Finding) -> str:
    return placed.summary if placed.status is not Status.NOT_APPLICABLE else "no buffers in host memory to judge"
