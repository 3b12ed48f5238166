"""What every probe's command does around its measuring: host by host, tables and findings or JSON, the exit code."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from nearsocket.commands import options
from nearsocket.commands.audit import with_sudo
from nearsocket.commands.options import say_error
from nearsocket.control import waivers
from nearsocket.control.target import Target
from nearsocket.control.targets import LOCAL, resolve
from nearsocket.control.transport.process import Children
from nearsocket.control.waivers import Waiver
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.exitcode import exit_code, worst_of, worst_status
from nearsocket.model.finding import Status
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.text import one_line
from nearsocket.report import findings as pages
from nearsocket.report import probe as tables
from nearsocket.report import probe_json
from nearsocket.report.terminal import console
from nearsocket.report.text import Pen


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every probe: `as_json`, `limit`, `verbose`, and those of reading hosts."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write nearsocket.probe/1 to standard output, nothing else."),
        click.option("--limit", multiple=True, metavar="PATTERN", help="Only these hosts or groups; may be repeated."),
        click.option("-v", "--verbose", is_flag=True, help="Every finding, its evidence whole."),
        options.reaching,
    ):
        command = option(command)
    return command


@dataclass
class _Came:
    """What came of the hosts so far. `missing`: one of them was refused or not reached."""

    reports: list[ProbeReport] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    missing: bool = False


def each(words: Sequence[str], given: dict[str, Any], act: Callable[[Target, Children], list[ProbeReport]]) -> int:
    """Do it host by host: GPUs that are measured side by side would share what is measured. One that fails stops no other."""
    if len(words) > 1:
        raise UsageError(f"expected one TARGET, found {len(words)}: {one_line(words[1], 60)!r}")
    inventory = resolve(words or (LOCAL,)).limited(given["limit"])
    came, children = _Came(), Children()
    try:
        for target in with_sudo(inventory.targets, given["sudo"], given["ask_sudo_password"]):
            try:
                reports = _waived(act(target, children), inventory.waivers, target.name)
            except UsageError:
                raise
            except NearsocketError as error:
                say_error(error.message, error.hint)
                came.codes.append(error.exit_code)
                came.missing = True
                continue
            came.reports += reports
            if not given["as_json"]:
                _show(reports, given["verbose"])
    finally:
        children.end_all()
    for report in came.reports:
        came.codes.append(exit_code(report.findings))
        if report.unkept is not None:
            say_error(report.unkept.message, report.unkept.hint)
            came.codes.append(report.unkept.exit_code)
    code = worst_of(came.codes)
    if given["as_json"]:
        click.echo(probe_json.render(came.reports, _status(came), code))
    return code


def _waived(reports: Sequence[ProbeReport], given: Sequence[Waiver], host: str) -> list[ProbeReport]:
    """The reports of that host, findings that the inventory's waivers cover today marked so."""
    today = datetime.now(UTC).date()
    return [dataclasses.replace(one, findings=waivers.apply(given, host, one.findings, today)) for one in reports]


def _status(came: _Came) -> Status:
    """The worst status that counts; a host that was refused or not reached is unknown."""
    found = [finding for report in came.reports for finding in report.findings]
    counted = [finding.status for finding in found if finding.waived is None]
    if came.missing or not found:
        counted.append(Status.UNKNOWN)
    return worst_status(counted) if counted else Status.NOT_APPLICABLE


def _show(reports: Sequence[ProbeReport], verbose: bool) -> None:
    to = console(sys.stdout)
    pen = Pen.of(to)
    for report in reports:
        for line in tables.lines(report):
            to.print(line)
        to.print()
        for text in pages.problems(report.findings, pen, verbose):
            to.print(text)
        for text in pages.waived(report.findings, pen):
            to.print(text)
        for found in report.findings:
            if found.status in (Status.PASS, Status.NOT_APPLICABLE):
                to.print(
                    Text.assemble(pen.mark(found.status), " ", pen.outside(found.id, "bold"), "  ", pen.outside(found.summary))
                )
                for piece in found.evidence if verbose else ():
                    to.print(Text("    ").append_text(pen.outside(f"{piece.source}: {piece.text}", "dim")))
