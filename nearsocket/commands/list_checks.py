"""`nearsocket list-checks`: what an audit can say, one line for each check."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nearsocket.control import guard, waivers
from nearsocket.control.checks import load
from nearsocket.model.check import Afterwards, Check
from nearsocket.model.probe.pages import PAGES
from nearsocket.model.startfindings import START_FINDINGS
from nearsocket.model.text import one_line
from nearsocket.paths import checks_folder


@click.command("list-checks")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="A list of objects: id, concern, core, measured, summary.",
)
@click.option(
    "--checks", "folders", multiple=True, metavar="DIR", type=click.Path(path_type=Path), help="A folder of checks of your own."
)
def list_checks(as_json: bool, folders: tuple[Path, ...]) -> None:
    """List the checks: id, a mark on core ones, summary.

    Where a core check (marked *) is unknown, the exit code of an audit is 3. What is marked p is measured by `nearsocket probe`.
    """
    chosen = [checks_folder(), *folders]
    with guard.standard_output_kept():
        checks: list[Check | Afterwards] = [*load(chosen), waivers.UNUSED, *PAGES, *START_FINDINGS]
    checks.sort(key=lambda check: check.id)
    click.echo(f"checks from {one_line(', '.join(map(str, chosen)), 400)}", err=True)
    if as_json:
        listed = [{"id": c.id, "concern": c.concern, "core": c.core, "measured": c in PAGES, "summary": c.summary} for c in checks]
        click.echo(json.dumps(listed, indent=1))
        return
    width = max((len(check.id) for check in checks), default=0)
    for check in checks:
        mark = "*" if check.core else "p" if check in PAGES else " "
        click.echo(f"{check.id:<{width}}  {mark}  {one_line(check.summary, 300)}".rstrip())
