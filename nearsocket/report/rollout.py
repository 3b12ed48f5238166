"""A rollout for people: host by host what was done and how long it took, each replica before and after, what was not touched."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from nearsocket.model.errors import EXIT_CLEAN, EXIT_FAILURES
from nearsocket.model.plan.report import EXIT_PENDING
from nearsocket.model.rollout.report import WRONG, End, HostReport, Proof, ReplicaReport, RolloutReport
from nearsocket.report.text import QUIET, Pen, wrap

_STYLES = {
    End.VERIFIED: "green",
    End.CURRENT: "green",
    End.EARLIER: "green",
    End.PENDING: "bold yellow",
    End.SKIPPED: "yellow",
    End.UNTOUCHED: QUIET,
    End.INTERRUPTED: "bold yellow",
    End.ROLLED_BACK: "bold red",
    End.FAILED: "bold red",
}
_SAYS = {
    End.CURRENT: "nothing to do, and proven",
    End.EARLIER: "proven before, in this rollout",
    End.SKIPPED: "not reached",
}
_MEANING = {EXIT_CLEAN: "done", EXIT_FAILURES: "refused or failed", EXIT_PENDING: "changes pending"}
#: More changes than that are counted.
_MOST_CHANGES = 12
_LABEL = 9


def show(report: RolloutReport, to: Console) -> None:
    """Write the page."""
    pen = Pen.of(to)
    for line in _lines(report, pen):
        to.print(line, soft_wrap=True)


def show_host(host: HostReport, to: Console) -> None:
    """Write one host's part."""
    for line in _host(host, Pen.of(to), False):
        to.print(line, soft_wrap=True)


def host_line(host: HostReport, to: Console) -> Text:
    """One host in one line, as its turn ends."""
    return _head(host, Pen.of(to))


def _lines(report: RolloutReport, pen: Pen) -> Iterator[Text]:
    for host in report.hosts:
        yield from _host(host, pen, report.check)
    yield from wrap(_closing(report, pen), pen.width)
    yield Text(f"exit code {report.exit_code}: {_MEANING.get(report.exit_code, 'interrupted')}", QUIET)
    unfinished = report.id is not None and any(host.end in (*WRONG, End.INTERRUPTED, End.UNTOUCHED) for host in report.hosts)
    if unfinished:
        step = f"see to the cause, then the same again; with --resume where rollout {report.id} changed a host, by anybody"
        yield from wrap(Text.assemble(("next: ", "bold"), pen.outside(step)), pen.width)


def _closing(report: RolloutReport, pen: Pen) -> Text:
    ends = [host.end for host in report.hosts]
    told = ", ".join(f"{ends.count(end)} {end.value}" for end in End if end in ends)
    name = pen.outside(f"{report.job} {report.id}" if report.id else report.job, "bold")
    return Text.assemble(name, f" by {report.by}: {told}", (f", {_time(report.took_s)}", QUIET))


def _head(host: HostReport, pen: Pen) -> Text:
    line = Text.assemble((host.end.value.upper(), _STYLES[host.end]), "  ", pen.outside(host.name, "bold"))
    if host.end is End.ROLLED_BACK:
        line.append_text(pen.outside(f"  back on {_kind(host)}{host.after}"))
    elif host.before != host.after:
        line.append_text(pen.outside(f"  {_kind(host)}{host.before or 'none'} to {host.after or 'none'}"))
    elif host.after is not None:
        line.append_text(pen.outside(f"  {_kind(host)}{host.after}", QUIET))
    if host.end in _SAYS:
        line.append(f"  {_SAYS[host.end]}", QUIET)
    took = sum(host.took_s.values())
    return line.append(f"  {_time(took)}", QUIET) if took else line


def _kind(host: HostReport) -> str:
    """What is in force there: a generation has a number, a driver a version with dots."""
    return "generation " if (host.after or host.before or "").isdigit() else "driver "


def _host(host: HostReport, pen: Pen, check: bool) -> Iterator[Text]:
    yield from wrap(_head(host, pen), pen.width)
    if host.reason:
        yield from _row("why", pen.outside(host.reason, _STYLES[host.end] if host.end in WRONG else ""), pen)
    if host.hint:
        yield from _row("do", pen.outside(host.hint), pen)
    for replica in host.replicas if host.end not in (End.UNTOUCHED, End.SKIPPED) else ():
        yield from _replica(replica, pen, check)
    shown = [one for one in host.changes if _telling(one)][:_MOST_CHANGES] if host.end in (End.PENDING, *WRONG) else []
    for change in shown:
        yield from _row("change", pen.outside(change, QUIET), pen)
    if len(host.changes) > len(shown):
        label = "pending" if host.end is End.UNTOUCHED else "changes"
        told = f"{len(host.changes) - len(shown)}{' more' if shown else ''}, --json lists them"
        yield from _row(label, Text(told, QUIET), pen)
    for note in host.notes:
        yield from _row("note", pen.outside(note, QUIET), pen)
    if host.took_s and host.end not in (End.CURRENT, End.EARLIER):
        told = ", ".join(f"{phase} {_time(seconds)}" for phase, seconds in host.took_s.items())
        yield from _row("took", Text(told, QUIET), pen)
    yield Text()


def _telling(change: str) -> bool:
    """Whether a change is more than one of the many files and links that come with it."""
    return not {"file", "link", "program"} & set(change.split()[:3])


def _replica(one: ReplicaReport, pen: Pen, check: bool) -> Iterator[Text]:
    if check:
        last = _proof("last proof ", one.before, pen) if one.before else Text("no proof known", QUIET)
        yield from _row(one.name, last, pen)
        return
    did = f"{one.did}{f' in {_time(one.took_s)}' if one.took_s is not None else ''}" if one.did else "ran on"
    yield from _row(one.name, Text(did), pen)
    for label, proof in (("before  ", one.before), ("after   ", one.after)):
        if proof is not None:
            yield from _row("", _proof(label, proof, pen), pen)


def _proof(label: str, proof: Proof, pen: Pen) -> Text:
    return Text.assemble((label, QUIET), pen.mark(proof.status), " ", pen.outside(proof.line))


def _row(label: str, text: Text, pen: Pen) -> Iterator[Text]:
    """A label and what stands beside it, its further lines under the first."""
    head = pen.outside(label, "bold")
    first = Text.assemble("  ", head, " " * max(1, _LABEL - head.cell_len))
    for at, part in enumerate(wrap(text, max(pen.width - first.cell_len, 10))):
        yield Text.assemble(first if not at else " " * first.cell_len, part)


def _time(seconds: float) -> str:
    """`3.2 s`, `4 min 10 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
