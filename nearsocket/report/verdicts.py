"""Verdicts on running replicas: for people, each host's replicas with their findings; for programs, `nearsocket.verify/1`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from nearsocket.model import findingvalue
from nearsocket.model.finding import Finding, Status
from nearsocket.model.verdict import Verdict
from nearsocket.report import findings
from nearsocket.report.text import QUIET, STYLES, Pen, word, wrap

SCHEMA = "nearsocket.verify/1"


@dataclass(frozen=True)
class Page:
    """One host's part: its verdicts, replicas without one (name, reason), findings on the host itself, why nothing is proven."""

    name: str
    status: Status
    verdicts: tuple[Verdict, ...]
    silent: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
    reason: str | None


def render(hosts: Sequence[Page], status: Status, code: int) -> str:
    """The JSON text: printable ASCII, no line feed at the end."""
    whole = {"schema": SCHEMA, "hosts": [_host(host) for host in hosts], "status": status.value, "exit_code": code}
    return json.dumps(whole, indent=2, ensure_ascii=True, allow_nan=False).replace("\x7f", "\\u007f")


def _host(host: Page) -> dict[str, Any]:
    return {
        "name": host.name,
        "status": host.status.value,
        "reason": host.reason,
        "findings": [findingvalue.value(finding) for finding in host.findings],
        "verdicts": [{key: value for key, value in one.value().items() if key != "basis"} for one in host.verdicts],
        "without": [{"replica": name, "reason": reason} for name, reason in host.silent],
    }


def show(hosts: Sequence[Page], to: Console, verbose: bool = False) -> None:
    """Write each host's replicas, the findings that are wrong with evidence and remedy."""
    pen = Pen.of(to)
    for host in hosts:
        for line in _lines(host, pen, verbose):
            to.print(line, soft_wrap=True)


def _lines(host: Page, pen: Pen, verbose: bool) -> Iterator[Text]:
    head = Text.assemble(pen.mark(host.status), " ", (word(host.status), STYLES[host.status]), "  ", pen.outside(host.name, "bold"))
    if host.reason:
        head.append("  ").append_text(pen.outside(host.reason))
    yield from wrap(head, pen.width)
    yield from findings.problems(host.findings, pen, verbose)
    for name, reason in host.silent:
        yield from wrap(
            Text.assemble("  ", pen.mark(Status.UNKNOWN), " ", pen.outside(name, "bold"), "  ", pen.outside(reason)), pen.width
        )
    for one in host.verdicts:
        line = Text.assemble("  ", pen.mark(one.status), " ", pen.outside(one.replica, "bold"), "  ", pen.outside(one.line))
        yield from wrap(line, pen.width)
        yield from wrap(Text.assemble("    started ", pen.outside(one.started_at), style=QUIET), pen.width)
        for note in one.notes if verbose else ():
            yield from wrap(Text.assemble("    note: ", pen.outside(note), style=QUIET), pen.width)
        yield from findings.problems(one.findings, pen, verbose)
        yield from findings.rest(one.findings, pen, verbose)
