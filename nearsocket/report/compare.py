"""A comparison for people: each host's regressions first, then other changes, then gains; what was not compared, and the code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from nearsocket.model.compare.values import Change, Comparison, Grade, HostComparison
from nearsocket.report.text import QUIET, Pen, wrap

_STYLES = {
    Grade.FAIL: "bold red",
    Grade.UNKNOWN: "bold magenta",
    Grade.WARN: "bold yellow",
    Grade.CHANGED: "",
    Grade.BETTER: "green",
}
_HEADS = {
    Grade.FAIL: "worse",
    Grade.UNKNOWN: "no longer known",
    Grade.WARN: "worse, a warning",
    Grade.CHANGED: "changed",
    Grade.BETTER: "better",
}
_MEANING = {0: "no regression", 1: "warnings only", 2: "a regression", 3: "a core finding became unknown"}
#: Changes of one grade that are shown unless everything is asked for: an upgrade can change a hundred packages.
_MOST = 20


def show(comparison: Comparison, to: Console, verbose: bool = False) -> None:
    """Write the page."""
    pen = Pen.of(to)
    for host in comparison.hosts:
        for line in lines(host, pen, verbose):
            to.print(line, soft_wrap=True)
    code = comparison.exit_code
    to.print(Text(f"exit code {code}: {_MEANING[code]}", QUIET), soft_wrap=True)


def lines(host: HostComparison, pen: Pen, verbose: bool = False) -> Iterator[Text]:
    """One host's part."""
    yield from wrap(Text.assemble(pen.outside(host.name, "bold"), "  ", (_counted(host.changes), QUIET)), pen.width)
    for word, moment in (("before", host.before), ("after", host.after)):
        yield from wrap(Text.assemble((f"  {word:<7} ", QUIET), pen.outside(moment or "none", QUIET)), pen.width)
    for grade in Grade:
        found = [change for change in host.changes if change.grade is grade]
        if not found:
            continue
        yield Text(f"  {_HEADS[grade]}", _STYLES[grade] or "bold")
        limit = len(found) if verbose or grade.regression else _MOST
        for change in found[:limit]:
            yield from _change(change, pen)
        if len(found) > limit:
            yield Text(f"    {len(found) - limit} more with -v", QUIET)
    for note in host.notes:
        yield from _indented(Text.assemble(("note  ", "yellow"), pen.outside(note)), 2, pen)
    yield Text()


def _counted(changes: Sequence[Change]) -> str:
    worse = sum(change.grade.regression for change in changes)
    better = sum(change.grade is Grade.BETTER for change in changes)
    if not changes:
        return "nothing changed"
    return f"{worse} worse, {len(changes) - worse - better} changed, {better} better"


def _change(change: Change, pen: Pen) -> Iterator[Text]:
    """A finding in two lines, what it said and says; anything else in one where it fits."""
    style = _STYLES[change.grade]
    head = Text.assemble((f"{change.section.value:<10} ", QUIET), pen.outside(change.id or change.subject, style))
    head.append("  ").append_text(pen.outside(change.subject if change.id else change.what))
    values = Text.assemble(pen.outside(change.before or "none", QUIET), " -> ", pen.outside(change.after or "none"))
    together = Text.assemble("    ", head, "  ", values)
    if together.cell_len <= pen.width:
        yield together
        return
    yield from _indented(head, 4, pen)
    yield from _indented(Text.assemble(("was  ", QUIET), pen.outside(change.before or "none", QUIET)), 8, pen)
    yield from _indented(Text.assemble(("now  ", QUIET), pen.outside(change.after or "none")), 8, pen)


def _indented(text: Text, by: int, pen: Pen) -> Iterator[Text]:
    for line in wrap(text, max(pen.width - by, 10)):
        yield Text.assemble(" " * by, line)
