"""`nearsocket plan`: what would be placed and written where, and why."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import click

from nearsocket import paths
from nearsocket.commands import options
from nearsocket.commands.audit import with_sudo
from nearsocket.control import planning
from nearsocket.control.targets import resolve
from nearsocket.model.plan.report import exit_code
from nearsocket.report import plan as page
from nearsocket.report import plan_json, terminal


@click.command()
@click.argument("target", metavar="INVENTORY")
@click.option(
    "--from-snapshots",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Take hosts from DIR/<host>.snapshot.json and contact none.",
)
@click.option(
    "--render",
    "out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="OUT",
    help="Write the files to OUT/<host>/.",
)
@click.option("--json", "as_json", is_flag=True, help="Write nearsocket.plan/1 to standard output, nothing else.")
@click.option(
    "--check",
    is_flag=True,
    help="End with 4 where changes are pending on the host, or, with --render, in OUT (not written).",
)
@click.option("--limit", multiple=True, metavar="PATTERN", help="Only these hosts or groups of the inventory; may be repeated.")
@options.reaching
def plan(
    target: str,
    folder: Path | None,
    out: Path | None,
    as_json: bool,
    check: bool,
    limit: tuple[str, ...],
    timeout_s: float,
    parallel: int,
    sudo: bool | None,
    ask_sudo_password: bool,
) -> int:
    """Show what goes where on each host, what is written, and why. Nothing is changed on a host.

    INVENTORY: fleet YAML or pyinfra Python with what is to be served (docs/fleet.md).

    Exit codes: 0 done, 2 refused or failed, 4 changes pending (with --check), 64 wrong usage.
    """
    inventory = resolve([target]).limited(limit)
    targets = inventory.targets if folder else with_sudo(inventory.targets, sudo, ask_sudo_password)
    made = planning.plans(targets, folder, paths.templates_folder(), timeout_s, parallel)
    hosts = [entry for entry, _ in made]
    if out is not None and check:
        hosts = [dataclasses.replace(e, review=planning.differs(g, out, e.name)) if g else e for e, g in made]
    elif out is not None:
        for entry, generation in made:
            if generation is not None:
                planning.write(generation, out, entry.name)
    code = exit_code(hosts, check, out is not None)
    if as_json:
        click.echo(plan_json.render(hosts, code))
    else:
        page.show(hosts, terminal.console(sys.stdout), code)
    return code
