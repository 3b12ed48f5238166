"""The report for people: a table of hosts where there are several, then each host with its drawing and findings, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from rich.console import Console
from rich.text import Text

from nearsocket.model.finding import Status
from nearsocket.model.host import Host
from nearsocket.model.report import HostReport, Report
from nearsocket.report import drawing, findings, parts, verdict
from nearsocket.report.text import PROBLEMS, QUIET, SEVERITY, STYLES, Pen, counts, fit, pad, tally, word, wrap

#: No page fits in fewer cells than that, and rich prints nothing at all at 0; what to take instead.
_NARROWEST, _UNKNOWN_WIDTH = 20, 80


def console(stream: IO[str], width: int | None = None) -> Console:
    """The console for that stream: colour on a terminal only (NO_COLOR, FORCE_COLOR, TERM=dumb hold), no markup in any text."""
    made = Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if width is None and made.width < _NARROWEST:  # COLUMNS=0, or a terminal that does not know its width
        made.width = _UNKNOWN_WIDTH
    return made


@dataclass(frozen=True)
class _Manner:
    """How much of a host to show; the legend stands under the first drawing only."""

    several: bool
    quiet: bool
    verbose: bool
    legend: bool


def show(report: Report, to: Console, quiet: bool = False, verbose: bool = False) -> None:
    """Write the report. `quiet`: problems alone, nothing where there are none; `verbose`: everything, evidence whole."""
    pen = Pen.of(to)
    for line in _lines(report, pen, quiet, verbose):
        to.print(line, soft_wrap=True)


def worst_first(hosts: Iterable[HostReport]) -> list[HostReport]:
    """The hosts as every page lists them: worst first, those in maintenance last."""
    return sorted(hosts, key=lambda host: (host.maintenance is not None, SEVERITY.index(host.status)))


def host_line(host: HostReport, to: Console) -> Text:
    """One host in one line, for results as they come: name, verdict, counts."""
    pen = Pen.of(to)
    return fit(_headline(host, pen), pen.width)


def _lines(report: Report, pen: Pen, quiet: bool, verbose: bool) -> Iterator[Text]:
    hosts = worst_first(report.hosts)
    several = len(hosts) > 1
    if several and not quiet:
        yield from _table(hosts, pen)
        yield Text()
    drawn = False
    for host in hosts:
        if verbose or not several or (host.status in PROBLEMS and host.maintenance is None):
            yield from _host(host, pen, _Manner(several, quiet, verbose, legend=not drawn))
            drawn = drawn or host.host is not None
    if not quiet:
        yield from verdict.closing(report, pen)


def _table(hosts: list[HostReport], pen: Pen) -> Iterator[Text]:
    """A line a host: verdict, name, counts in columns, or why it could not be read."""
    columns = PROBLEMS if pen.width < 60 else SEVERITY
    titles = {Status.NOT_APPLICABLE: "n/a"}
    heads = [titles.get(status, status.value) for status in columns]
    room = pen.width - 12 - (13 if any(host.maintenance for host in hosts) else 0) - sum(max(len(head), 3) + 2 for head in heads)
    name_width = max(min(max(pen.outside(host.name).cell_len for host in hosts), room), 8)
    head = Text(" " * 11 + "host".ljust(name_width) + "".join("  " + h.rjust(3) for h in heads), QUIET)
    yield head
    for host in hosts:
        line = Text.assemble(
            pen.mark(host.status), " ", ((titles.get(host.status) or word(host.status)).ljust(9), STYLES[host.status])
        )
        line.append_text(pad(pen.outside(host.name, "bold"), name_width))
        if not host.reachable:
            line.append("  ").append_text(pen.outside(host.reason or "not read"))
            yield fit(line, pen.width)
            continue
        known = counts(host.findings)
        for status, title in zip(columns, heads, strict=True):
            count = known[status]
            line.append("  " + str(count or pen.glyphs.marks[-1]).rjust(max(len(title), 3)), STYLES[status] if count else QUIET)
        if host.maintenance:
            until = Text.assemble("  maintenance until ", pen.outside(host.maintenance.until), style="yellow")
            short = Text("  maintenance", "yellow")
            line.append_text(next((note for note in (until, short) if line.cell_len + note.cell_len <= pen.width), Text()))
        yield fit(line, pen.width)


def _headline(host: HostReport, pen: Pen) -> Text:
    line = Text.assemble(pen.mark(host.status), " ", (word(host.status), STYLES[host.status]), "  ", pen.outside(host.name, "bold"))
    told = tally(host.findings, PROBLEMS) or tally(host.findings)
    if not host.reachable:
        return line.append("  ").append_text(pen.outside(host.reason or "not read"))
    if told:
        line.append("  ").append_text(Text(", ").join(told))
    waived = sum(finding.waived is not None for finding in host.findings)
    return line.append(f"  {waived} waived" if waived else "", QUIET)


def _host(host: HostReport, pen: Pen, manner: _Manner) -> Iterator[Text]:
    headline = _headline(host, pen)
    if manner.quiet and host.status not in PROBLEMS:
        return
    if not host.reachable and manner.several and not manner.verbose:
        yield from wrap(headline, pen.width)
        yield Text()
        return
    taken = host.taken_at.replace("T", " ").removesuffix("Z") + " UTC" if host.taken_at.endswith("Z") else host.taken_at
    taken_text = pen.outside(taken, QUIET)
    space = pen.width - headline.cell_len - taken_text.cell_len
    if space > 1:
        yield Text.assemble(headline, " " * space, taken_text)
    else:
        yield from [*wrap(headline, pen.width), *wrap(taken_text, pen.width)]
    if host.maintenance:
        until, reason = pen.outside(host.maintenance.until), pen.outside(host.maintenance.reason)
        yield from wrap(Text.assemble("in maintenance until ", until, ": ", reason, " (does not count)", style="yellow"), pen.width)
    if host.host is not None and not manner.quiet:
        yield from wrap(_about(host.host, pen), pen.width)
        yield Text()
        yield from drawing.draw(host.host, pen, manner.verbose)
        if host.host.nodes and manner.legend:
            yield from wrap(drawing.legend(pen), pen.width)
        for note in host.host.notes if manner.verbose else ():
            yield from wrap(Text.assemble("note: ", pen.outside(note), style=QUIET), pen.width)
    yield Text()
    yield from findings.problems(host.findings, pen, manner.verbose)
    if not manner.quiet:
        yield from findings.waived(host.findings, pen)
        rest = list(findings.rest(host.findings, pen, manner.verbose))
        yield from rest
        if rest:
            yield Text()


def _about(host: Host, pen: Pen) -> Text:
    """What the machine is: GPUs by name, driver, kernel; what does not fit on the line is left out, from the end."""
    said = parts.about(host)
    line = pen.outside(said[0], QUIET)
    for part in said[1:]:
        longer = Text.assemble(line, (", ", QUIET), pen.outside(part, QUIET))
        line = longer if longer.cell_len <= pen.width else line
    return line
