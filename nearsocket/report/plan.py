"""The plan for people: what goes where and why, what is written, what would be restarted, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from nearsocket.model.changes import Difference
from nearsocket.model.plan.report import HostPlan, PlanStatus
from nearsocket.model.plan.values import Decision, Refusal, ReplicaPlan
from nearsocket.report.text import QUIET, Pen, wrap

_STYLES = {
    PlanStatus.READY: "bold yellow",
    PlanStatus.CURRENT: "green",
    PlanStatus.REFUSED: "bold red",
    PlanStatus.FAILED: "bold red",
}
_MEANING = {0: "nothing stands in the way", 2: "refused or failed", 4: "changes pending"}
#: The cells of the first column.
_LABEL = 23


def show(hosts: Sequence[HostPlan], to: Console, exit_code: int) -> None:
    """Write the page."""
    pen = Pen.of(to)
    for host in hosts:
        for line in _host(host, pen):
            to.print(line, soft_wrap=True)
    to.print(Text(f"exit code {exit_code}: {_MEANING.get(exit_code, 'failed')}", QUIET), soft_wrap=True)


def _host(host: HostPlan, pen: Pen) -> Iterator[Text]:
    status = host.status
    head = Text.assemble((status.value.upper(), _STYLES[status]), "  ", pen.outside(host.name, "bold"))
    if host.plan:
        head.append("  ").append_text(pen.outside(f"snapshot of {host.plan.taken_at}", QUIET))
    yield from wrap(head, pen.width)
    if host.reason:
        yield from _pointed(host.reason, host.hint, pen)
    plan = host.plan
    if plan is None:
        yield Text()
        return
    yield from _refusals(plan.refusals, pen)
    for note in plan.notes:
        yield from _indented(Text.assemble(("note  ", "yellow"), pen.outside(note)), 2, pen)
    for replica in plan.replicas:
        yield Text()
        yield from _replica(replica, pen)
    if plan.decisions:
        yield Text()
        yield Text("the host", "bold")
        yield from _decisions(plan.decisions, pen)
    yield Text()
    yield from _written(host, pen)


def _refusals(refusals: Sequence[Refusal], pen: Pen) -> Iterator[Text]:
    for refusal in refusals:
        yield from _pointed(f"{refusal.subject}: {refusal.reason}", refusal.hint, pen)


def _pointed(what: str, hint: str | None, pen: Pen) -> Iterator[Text]:
    yield from _indented(Text.assemble(("refused  ", "bold red"), pen.outside(what)), 2, pen)
    if hint:
        yield from _indented(Text.assemble(("do       ", "bold"), pen.outside(hint)), 2, pen)


def _replica(replica: ReplicaPlan, pen: Pen) -> Iterator[Text]:
    settings = replica.settings
    what = f"{settings.engine.value} in {settings.runtime.value}, {settings.image.reference}"
    yield from wrap(Text.assemble("replica ", pen.outside(replica.name, "bold"), "  ", pen.outside(what, QUIET)), pen.width)
    yield from _decisions(replica.decisions, pen)
    for state in replica.layers:
        word, style = ("holds", "green") if state.used else ("not used", QUIET)
        label = f"layer {state.layer.value}"
        yield from _row(label, Text(word, style), pen.outside(state.reason, QUIET), pen)
    for note in replica.notes:
        yield from _indented(Text.assemble(("note  ", "yellow"), pen.outside(note)), 2, pen)


def _decisions(decisions: Sequence[Decision], pen: Pen) -> Iterator[Text]:
    for decision in decisions:
        yield from _row(decision.what, pen.outside(decision.choice), pen.outside(decision.reason, QUIET), pen)


def _row(label: str, choice: Text, reason: Text, pen: Pen) -> Iterator[Text]:
    """Label, choice, and the reason on the same line where it fits, else below."""
    start = Text("  " + label.ljust(_LABEL - 2))
    line = Text.assemble(start, choice)
    together = Text.assemble(line, "  ", reason) if reason.plain else line
    if together.cell_len <= pen.width:
        yield together
        return
    for at, part in enumerate(wrap(choice, max(pen.width - _LABEL, 10))):
        yield Text.assemble(start if not at else " " * _LABEL, part)
    if reason.plain:
        yield from _indented(reason, _LABEL, pen)


def _indented(text: Text, by: int, pen: Pen) -> Iterator[Text]:
    for line in wrap(text, max(pen.width - by, 10)):
        yield Text.assemble(" " * by, line)


def _written(host: HostPlan, pen: Pen) -> Iterator[Text]:
    manifest, changes = host.manifest, host.changes
    if manifest is None:
        return
    yield Text("what is written", "bold")
    marks = _marks(changes)
    for entry in manifest.files:
        mark = marks.get(entry.path, " ")
        yield from _indented(Text.assemble(mark, " ", pen.outside(entry.path), (f"  {entry.mode}", QUIET)), 2, pen)
    for path in changes.removed if changes else ():
        yield from _indented(Text.assemble("- ", pen.outside(path)), 2, pen)
    if host.unknown:
        unknown = pen.outside(f"what is there now is not known: {host.unknown}")
        yield from _indented(Text.assemble(("note  ", "yellow"), unknown), 2, pen)
    if changes is not None:
        yield from _effects(changes, pen)
    for path in host.review:
        yield from _indented(Text.assemble(("other in the review folder  ", "yellow"), pen.outside(path)), 2, pen)


def _marks(changes: Difference | None) -> dict[str, str]:
    if changes is None:
        return {}
    return {**dict.fromkeys(changes.added, "+"), **dict.fromkeys(changes.changed, "~")}


def _effects(changes: Difference, pen: Pen) -> Iterator[Text]:
    if changes.same:
        yield Text("  nothing changes", "green")
        return
    told = [
        ("daemon-reload", "yes, a unit changes" if changes.reload else "no"),
        ("starts", ", ".join(changes.start)),
        ("restarts", ", ".join(changes.restart)),
        ("takes out", ", ".join(replica.name for replica in changes.removed_replicas)),
        ("puts back", ", ".join(changes.sysctl_gone)),
    ]
    for label, value in told:
        if value:
            yield from _row(label, pen.outside(value), Text(), pen)
    if changes.removed_replicas:
        yield from _indented(Text("taking a replica out needs --data allow_removals=true", "yellow"), 2, pen)
