"""Judging all-reduces: whether they were right and ended, what near and far cost, which settings differ. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Evidence, Finding, failed, passed, unknown
from nearsocket.model.probe import planning
from nearsocket.model.probe.place import Where
from nearsocket.model.probe.series import Difference, Series, compare_all, microseconds, of_starts
from nearsocket.model.probe.sizes import DECODE_BYTES, PREFILL_BYTES, render
from nearsocket.model.probe.starts import Row, Started
from nearsocket.model.text import one_line

_SHOWN = 6


def judge(subject: str, started: Started) -> Finding:
    """`probe.allreduce`: every element right at every size, and an end in time."""
    wrong = [row for row in started.rows if row.wrong]
    if wrong:
        worst = max(wrong, key=lambda row: row.wrong)
        summary = (
            f"wrong sums: {worst.wrong:,} of {worst.size_bytes // 2:,} elements of {render(worst.size_bytes)} on rank {worst.rank},"
            f" the first at {worst.first_wrong}"
        )
        return failed(subject, summary, tuple(map(_wrong, wrong[:_SHOWN])), LOOK)
    if started.failed is not None:
        who = "" if started.failed_rank is None else f"rank {started.failed_rank}: "
        if started.lacks:  # no torch, no NCCL: nothing was tried, so nothing failed
            return unknown(subject, f"it could not run: {who}{started.failed}", _words(started), BRING)
        return failed(subject, f"{who}{started.failed}", _words(started), LOOK)
    if not started.rows:
        return unknown(subject, "nothing was measured: no size fits into the free memory", _words(started))
    sizes = of_starts([started.rows])
    largest = sizes[-1]
    checked = sum(row.size_bytes // 2 for row in started.rows)
    summary = (
        f"every element right at {len(sizes)} sizes up to {render(largest.size_bytes)}: "
        f"{microseconds(largest.median_us)}, {largest.bus_gb_s:.1f} GB/s"
    )
    return passed(subject, summary, (Evidence("ranks", f"{checked:,} elements checked, three times each, none wrong"),))


#: What to do where the ranks' Python lacks something.
BRING = "take an image that is there (deploys/site.py pulls it) or a --python that has torch with NCCL and sees the GPUs"
#: What to run where ranks fail or sums are wrong.
LOOK = "nearsocket audit  # then dmesg | grep -i xid; nvidia-smi -q -d ECC,PERFORMANCE"


def _wrong(row: Row) -> Evidence:
    return Evidence(f"rank {row.rank}", f"{render(row.size_bytes)}: {row.wrong:,} elements wrong, the first at {row.first_wrong}")


def _words(started: Started) -> tuple[Evidence, ...]:
    last = [line for line in started.words.splitlines() if line.strip()][-3:]
    return tuple(Evidence("standard error", one_line(line.strip(), 300)) for line in last) or (
        Evidence(started.name, started.failed or "ended"),
    )


@dataclass(frozen=True)
class Contrast:
    """The two runs, and how far compares with near, size by size."""

    near: tuple[Series, ...]
    far: tuple[Series, ...]
    differences: tuple[Difference, ...]


def contrast(near: Sequence[Started], far: Sequence[Started]) -> Contrast:
    """Far against near over all their starts."""
    one, other = of_starts([run.rows for run in near]), of_starts([run.rows for run in far])
    return Contrast(one, other, compare_all(other, one))


def judge_contrast(subject: str, found: Contrast, near: Sequence[Where], far: Sequence[Where]) -> Finding:
    """`probe.contrast`: what a far buffer costs here. It judges nothing as wrong; it may find that nearness brings nothing."""
    places = Evidence(
        "placement", f"forced near: {', '.join(w.value for w in near)}; forced far: {', '.join(w.value for w in far)}"
    )
    if set(near) | set(far) == {Where.NONE}:
        return passed(subject, "no benefit here: the GPUs exchange nothing through host memory", (places,))
    if set(near) != {Where.NEAR} or set(far) != {Where.FAR}:
        summary = "not told apart: the buffers did not land where they were forced"
        return unknown(subject, summary, (places,), "run it as root, with --cap-add SYS_NICE in a container")
    slower = [one for one in found.differences if one.exceeds and one.ratio > 1]
    lines = tuple(
        Evidence(render(one.size_bytes), f"far takes {one.ratio:.2f} times as long as near (noise {100 * one.noise:.0f} %)")
        for one in sorted(found.differences, key=lambda one: -one.ratio)[:_SHOWN]
    )
    if not slower:
        return passed(
            subject,
            f"no benefit here: far is not slower beyond the noise at any of {len(found.differences)} sizes",
            (places, *lines),
        )
    worst = max(slower, key=lambda one: one.ratio)
    smallest = render(min(one.size_bytes for one in slower))
    summary = (
        f"near pays: far takes {worst.ratio:.2f} times as long at {render(worst.size_bytes)}; "
        f"slower at {len(slower)} of {len(found.differences)} sizes, from {smallest} up"
    )
    return passed(subject, summary, (places, *lines))


def judge_sweep(subject: str, table: Mapping[str, Sequence[Series]], failures: Mapping[str, str]) -> Finding:
    """`probe.sweep`: which settings differ from the one in force beyond the noise, the decode and prefill sizes first."""
    own = table.get(planning.CONFIGURED, ())
    if not own:
        why = failures.get(planning.CONFIGURED, "it did not run")
        return unknown(subject, f"nothing to compare with: as configured {why}", (Evidence(planning.CONFIGURED, why),))
    lines = [Evidence(name, f"did not run: {why}") for name, why in failures.items()]
    best = []
    for size, word in ((DECODE_BYTES, "decode"), (PREFILL_BYTES, "prefill")):
        found = _best(size, own, table)
        if found is not None:
            best.append(f"{word} ({render(size)}) {found}")
    for name, sizes in table.items():
        if name != planning.CONFIGURED:
            lines.append(Evidence(name, _against(compare_all(sizes, own))))
    summary = "; ".join(best) or f"{len(table) - 1} settings measured"
    return passed(subject, summary, lines or [Evidence(planning.CONFIGURED, f"{len(own)} sizes")])


def _best(size: int, own: Sequence[Series], table: Mapping[str, Sequence[Series]]) -> Optional[str]:
    mine = next((one for one in own if one.size_bytes == size), None)
    if mine is None:
        return None
    faster = []
    for name, sizes in table.items():
        for one in compare_all((s for s in sizes if s.size_bytes == size), [mine]):
            if one.exceeds and one.ratio < 1:
                faster.append((one.ratio, name))
    if not faster:
        return "nothing beats the setting in force beyond the noise"
    ratio, name = min(faster)
    return f"{name} takes {100 * ratio:.0f} % of the time of the setting in force"


def _against(found: Sequence[Difference]) -> str:
    slower = [one for one in found if one.exceeds and one.ratio > 1]
    faster = [one for one in found if one.exceeds and one.ratio < 1]
    parts = []
    if faster:
        best = min(faster, key=lambda one: one.ratio)
        parts.append(f"faster at {len(faster)} sizes (best {best.ratio:.2f} at {render(best.size_bytes)})")
    if slower:
        worst = max(slower, key=lambda one: one.ratio)
        parts.append(f"slower at {len(slower)} sizes (worst {worst.ratio:.2f} at {render(worst.size_bytes)})")
    same = len(found) - len(slower) - len(faster)
    return ", ".join([*parts, f"the same within the noise at {same}"])
