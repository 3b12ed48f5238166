"""`nearsocket compare`: what changed on hosts between two snapshots, regressions first."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from nearsocket import paths
from nearsocket.commands import complete, options
from nearsocket.commands.audit import with_sudo
from nearsocket.control import checks as check_files
from nearsocket.control import guard, whole
from nearsocket.control.audit import Manner
from nearsocket.control.audit import audit as audit_targets
from nearsocket.control.sides import Side, sides
from nearsocket.control.target import Way
from nearsocket.model.compare import figures
from nearsocket.model.compare.make import compare as compare_reports
from nearsocket.model.errors import UsageError
from nearsocket.model.report import HostReport
from nearsocket.report import compare as page
from nearsocket.report import compare_json, terminal

_LARGEST_PROBE_BYTES = 64 << 20


@click.command()
@click.argument("before", shell_complete=complete.files)
@click.argument("after", shell_complete=complete.files)
@click.option("--json", "as_json", is_flag=True, help="Write nearsocket.compare/1 to standard output, nothing else.")
@click.option(
    "--probe",
    "probes",
    type=click.Path(path_type=Path),
    nargs=2,
    metavar="BEFORE AFTER",
    help="Compare these all-reduces (nearsocket.probe/1) too; for one host.",
)
@click.option(
    "--checks",
    "folders",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Checks of your own as well; may be repeated.",
)
@click.option(
    "--limit", multiple=True, metavar="PATTERN", help="Only these hosts (on both sides) or groups of an inventory; may be repeated."
)
@options.near
@options.reaching
@click.option("-v", "--verbose", is_flag=True, help="Every change.")
def compare(
    before: str,
    after: str,
    as_json: bool,
    probes: tuple[Path, Path] | None,
    folders: tuple[Path, ...],
    limit: tuple[str, ...],
    near: frozenset[int] | None,
    timeout_s: float,
    parallel: int,
    sudo: bool | None,
    ask_sudo_password: bool,
    verbose: bool,
) -> int:
    """Say what changed between two snapshots: hardware, placement, figures, versions, parameters; regressions first.

    BEFORE, AFTER: a saved snapshot or a folder of them, or a live target as `nearsocket audit` takes it. Folders and inventories
    are compared host by host, by name; two single files or hosts are a pair whatever their names are.

    Exit codes: 0 no regression, 1 warnings only, 2 a regression, 3 a core finding became unknown, 64 wrong usage.
    """
    with guard.standard_output_kept():
        manner = Manner(
            checks=check_files.load([paths.checks_folder(), *folders]), near=near, timeout_s=timeout_s, parallel=parallel
        )

    old = {} if probes is None else _figures(probes[0])
    new = {} if probes is None else _figures(probes[1])
    earlier, later, pair = sides(before, after, limit)
    if probes is not None:
        _one_host(earlier, later, pair)

    def reports(side: Side) -> tuple[HostReport, ...]:
        live = any(target.way is not Way.FILE for target in side.targets)
        chosen = with_sudo(side.targets, sudo, ask_sudo_password) if live else side.targets
        with guard.standard_output_kept():
            return audit_targets(chosen, manner, loaded=side.saved).hosts

    found = compare_reports(reports(earlier), reports(later), old, new, pair)
    if as_json:
        click.echo(compare_json.render(found))
    else:
        page.show(found, terminal.console(sys.stdout), verbose)
    return found.exit_code


def _one_host(earlier: Side, later: Side, pair: bool) -> None:
    """Raises UsageError where a probe's figures belong to no one host of both sides."""
    if len(earlier.targets) == len(later.targets) == 1 and (pair or earlier.targets[0].name == later.targets[0].name):
        return
    counts = f"{len(earlier.targets)} before, {len(later.targets)} after"
    found = "two of different names" if counts == "1 before, 1 after" else counts
    raise UsageError(f"--probe: expected one host, the same on each side, found {found}", "compare them one by one")


def _figures(path: Path) -> figures.Figures:
    try:
        return figures.of_probe(whole.read(path, "a probe", _LARGEST_PROBE_BYTES))
    except UsageError as error:
        raise UsageError(error.message if str(path) in error.message else f"{path}: {error.message}", error.hint) from None
