"""The report as Markdown, to paste into a ticket: a table of hosts, then what is wrong on each, with evidence and remedy."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.report import HostReport, Report
from nearsocket.model.text import one_line
from nearsocket.report import drawing, parts, verdict
from nearsocket.report.terminal import console, worst_first
from nearsocket.report.text import PROBLEMS, SEVERITY, Pen, bounded, by_severity, counts, remedy_text, word

#: Trackers take 65,536 characters; what goes beyond is counted and left to the other forms.
MOST_CHARACTERS = 60_000
_LONGEST_TEXT, _LONGEST_EVIDENCE, _MOST_EVIDENCE, _WIDTH, _MOST_ROWS = 500, 2000, 6, 90, 200
#: What Markdown or the HTML inside it obeys: marks anywhere, marks that begin a line, emoji's names and addresses. `@` and `#`
#: would call people and tickets.
_OBEYED = re.compile(r"[\\`*_{}\[\]<>#|~&@^$]|^[-+=]|:(?=[A-Za-z+/-])|(?<=[Ww]{3})\.")

_NUMBERED = re.compile(r"^( *\d{1,9})([.)])")


def render(report: Report) -> str:
    """The Markdown text (GitHub's and GitLab's dialect), at most MOST_CHARACTERS long."""
    hosts = worst_first(report.hosts)
    meaning, step = verdict.words(report)
    head = f"# Nearsocket: {word(report.status)}\n\nExit code {report.exit_code}: {meaning}. Next: {step}.\n"
    made = [head, _table(hosts)] if len(hosts) > 1 else [head]
    room = MOST_CHARACTERS - sum(map(len, made)) - 200
    detailed = [host for host in hosts if len(hosts) == 1 or (host.status in PROBLEMS and host.maintenance is None)]
    for at, host in enumerate(detailed):
        section = "\n".join(_host(host))
        if len(section) > room:
            made.append(
                f"{len(detailed) - at} of {len(detailed)} hosts with findings have no room here; the HTML report shows them.\n"
            )
            break
        room -= len(section) + 1
        made.append(section)
    return "\n".join(made)


def escaped(text: str, limit: int = _LONGEST_TEXT) -> str:
    """Outside text on one line that Markdown shows as it is."""
    return _NUMBERED.sub(r"\1\\\2", _OBEYED.sub(r"\\\g<0>", one_line(text, limit)))


def _table(hosts: list[HostReport]) -> str:
    lines = ["| host | status | " + " | ".join(s.value for s in SEVERITY) + " |", "| --- | --- |" + " ---: |" * len(SEVERITY)]
    for host in hosts[:_MOST_ROWS]:
        note = " (maintenance)" if host.maintenance else "" if host.reachable else " (not read)"
        tally = counts(host.findings)
        numbers = " | ".join(str(tally[s] or "") for s in SEVERITY)
        lines.append(f"| {escaped(host.name, 80)} | {word(host.status)}{note} | {numbers} |")
    if len(hosts) > _MOST_ROWS:
        lines.append(f"\n{len(hosts) - _MOST_ROWS} more hosts, none of them worse.")
    return "\n".join(lines) + "\n"


def _host(host: HostReport) -> Iterator[str]:
    yield f"## {escaped(host.name)}: {word(host.status)}\n"
    about = ", ".join(parts.about(host.host)) if host.host else host.reason or "not read"
    yield f"Read {escaped(host.taken_at)}: {escaped(about)}.\n"
    if host.maintenance:
        yield f"In maintenance until {escaped(host.maintenance.until)}: {escaped(host.maintenance.reason)} (does not count).\n"
    if host.host:
        yield _fenced(_drawn(host.host))
    ordered = by_severity(host.findings)
    for finding in ordered:
        if finding.status in PROBLEMS and finding.waived is None:
            yield from _problem(finding)
    for finding in ordered:
        if finding.waived is not None:
            until, owner, reason = (escaped(t) for t in (finding.waived.expires, finding.waived.owner, finding.waived.reason))
            yield f"- waived until {until} by {owner}: {escaped(finding.id)} {escaped(finding.subject)} ({reason})\n"
    rest = [f"{count} {status.value}" for status, count in counts(host.findings).items() if count and status not in PROBLEMS]
    if rest:
        yield f"{', '.join(rest)}.\n"


def _problem(finding: Finding) -> Iterator[str]:
    yield f"### {word(finding.status)} `{_code(finding.id)}` {escaped(finding.subject)}\n"
    yield f"{escaped(finding.summary, 1000)}\n"
    shown = finding.evidence[:_MOST_EVIDENCE]
    said = [f"{one_line(e.source, _LONGEST_TEXT)}: {bounded(e.text, _LONGEST_EVIDENCE)}" for e in shown]
    if len(finding.evidence) > len(shown):
        said.append(f"({len(finding.evidence) - len(shown)} more pieces of evidence)")
    if said:
        yield _fenced("\n".join(said))
    if finding.remedy:
        yield "Remedy:\n"
        yield _fenced(remedy_text(finding.remedy), "sh")


def _code(text: str) -> str:
    return one_line(text, _LONGEST_TEXT).replace("`", "'")


def _fenced(text: str, language: str = "") -> str:
    """A block of code whose fence is longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _drawn(host: Host) -> str:
    """The terminal's drawing, without colour."""
    pen = Pen.of(console(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), _WIDTH))
    lines = [line.plain.rstrip() for line in drawing.draw(host, pen)]
    return "\n".join([*lines, drawing.legend(pen).plain] if host.nodes else lines)
