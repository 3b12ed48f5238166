"""What a probe measured, for people: tables of plain text, one line a size, and the findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nearsocket.model.probe import planning
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.probe.series import Difference, Series, compare_all, microseconds
from nearsocket.model.probe.sizes import render
from nearsocket.model.text import one_line


def lines(report: ProbeReport) -> Iterator[str]:
    """The tables of one report, with a line on what they are."""
    versions = sorted({f"{key} {value}" for facts in report.facts.values() for key, value in facts.items() if key != "pci"})
    yield f"{report.kind} on {one_line(report.host, 100)}, {one_line(report.subject, 100)}"
    if versions:
        yield one_line(", ".join(versions), 200)
    if report.sweep:
        yield from sweep(report.tables)
    elif report.near:
        yield from sizes(report.tables.get(planning.CONFIGURED, ()))
        yield from against(("forced near", "forced far"), report.tables[planning.NEAR], report.tables[planning.FAR])
    elif report.kind == "lottery":
        for name, series in report.tables.items():
            drawn = [draw.where.value for draw in report.draws if draw.name == name]
            yield f"{one_line(name, 200)}: {' '.join(drawn)}"
            yield from sizes(series)
    elif report.kind == "allreduce":
        yield from sizes(report.tables.get(planning.CONFIGURED, ()))
    if report.capped_bytes is not None:
        yield f"sizes above {render(report.capped_bytes // 64 * 64)} are left out: the free memory does not hold them"


def sizes(series: Sequence[Series]) -> Iterator[str]:
    """Size, median of the slowest rank, p99, bus bandwidth, and how far the rounds lie apart."""
    yield f"{'size':>9}  {'median':>9}  {'p99':>9}  {'bus GB/s':>8}  {'rounds':>6}  {'spread':>6}"
    for one in series:
        wrong = f"  {one.wrong:,} WRONG" if one.wrong else ""
        spread = f"{100 * one.width:.1f} %" if len(one.rounds_us) > 1 else "-"
        yield (
            f"{render(one.size_bytes):>9}  {microseconds(one.median_us):>9}  {microseconds(one.p99_us):>9}  "
            f"{one.bus_gb_s:>8.2f}  {len(one.rounds_us):>6}  {spread:>6}{wrong}"
        )


def against(names: tuple[str, str], one: Sequence[Series], other: Sequence[Series]) -> Iterator[str]:
    """Two series of runs side by side, the second by the first."""
    yield f"{'size':>9}  {names[0]:>13}  {names[1]:>13}  {'ratio':>6}  {'noise':>6}"
    first = {series.size_bytes: series for series in one}
    second = {series.size_bytes: series for series in other}
    for found in compare_all(other, one):
        near, far = first[found.size_bytes], second[found.size_bytes]
        yield (
            f"{render(found.size_bytes):>9}  {microseconds(near.median_us):>13}  {microseconds(far.median_us):>13}  "
            f"{found.ratio:>6.2f}  {100 * found.noise:>4.0f} %{_mark(found)}"
        )


def sweep(table: Mapping[str, Sequence[Series]]) -> Iterator[str]:
    """One table: sizes down, settings across (numbered, named first); a mark where one differs from the setting in force."""
    names = list(table)
    for number, name in enumerate(names):
        yield f"[{number}] {one_line(name, 200)}"
    yield "times of the slowest rank; + faster, - slower than [0] beyond the noise"
    yield f"{'size':>9}" + "".join(f"  {f'[{number}]':>10}" for number in range(len(names)))
    own = table.get(planning.CONFIGURED, ())
    marks = {name: {found.size_bytes: _mark(found) for found in compare_all(series, own)} for name, series in table.items()}
    cells = {name: {one.size_bytes: one for one in series} for name, series in table.items()}
    for size in sorted({size for found in cells.values() for size in found}):
        line = f"{render(size):>9}"
        for name in names:
            one = cells[name].get(size)
            text = f"{microseconds(one.median_us)}{marks[name].get(size, '').strip() or ' '}" if one else "not run "
            line += f"  {text:>10}"
        yield line.rstrip()


def _mark(found: Difference) -> str:
    return "" if not found.exceeds else " -" if found.ratio > 1 else " +"
