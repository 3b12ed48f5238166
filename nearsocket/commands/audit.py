"""`nearsocket audit`: reads hosts once each, judges, reports."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from nearsocket import paths
from nearsocket.commands import complete, options
from nearsocket.commands.options import say_error
from nearsocket.commands.output import Destination, NotWritten, destination, measured_in
from nearsocket.commands.output import options as report_options
from nearsocket.control import checks as check_files
from nearsocket.control import guard
from nearsocket.control.audit import Manner
from nearsocket.control.audit import audit as audit_targets
from nearsocket.control.inventory import Inventory
from nearsocket.control.target import Sudo, Target, Way
from nearsocket.control.targets import resolve
from nearsocket.control.waivers import UNUSED
from nearsocket.model.errors import EXIT_NOT_WRITTEN, NearsocketError, UsageError
from nearsocket.model.exitcode import worst_of
from nearsocket.model.probe.pages import PAGES
from nearsocket.model.report import HostReport, Report
from nearsocket.model.scrub import Scrubber
from nearsocket.model.text import one_line
from nearsocket.report import terminal
from nearsocket.report.formats import Format, Wish, render


@click.command()
@click.argument("targets", metavar="[TARGET]...", nargs=-1, shell_complete=complete.files)
@report_options
@click.option(
    "--probe",
    "probe_files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Draw what a probe measured (nearsocket.probe/1) on the HTML page; may be repeated.",
)
@click.option("--save", type=options.Folder(), metavar="DIR", help="Write DIR/<host>.snapshot.json.")
@click.option("--scrub", is_flag=True, help="Take host names, addresses, serials and UUIDs out of snapshots and report.")
@click.option(
    "--checks",
    "folders",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Checks of your own as well; may be repeated.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="ID",
    shell_complete=complete.checks,
    help="Only these checks (nccl.*, memory, host.reachable); may be repeated.",
)
@click.option("--limit", multiple=True, metavar="PATTERN", help="Only these hosts or groups of the inventory; may be repeated.")
@click.option("--strict", is_flag=True, help="Every unknown is 3, every warning 2.")
@options.near
@options.reaching
@click.option("-q", "--quiet", is_flag=True, help="Only what is wrong.")
@click.option("-v", "--verbose", is_flag=True, help="Every finding, its evidence whole.")
def audit(
    targets: tuple[str, ...],
    form: str | None,
    as_json: bool,
    output: Path | None,
    probe_files: tuple[Path, ...],
    save: Path | None,
    scrub: bool,
    folders: tuple[Path, ...],
    only: tuple[str, ...],
    limit: tuple[str, ...],
    strict: bool,
    near: frozenset[int] | None,
    timeout_s: float,
    parallel: int,
    sudo: bool | None,
    ask_sudo_password: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Audit hosts: read each one once, write nothing there, judge with proof.

    TARGET: @local (default), [user@]host[:port], an inventory (pyinfra Python or fleet YAML), or saved snapshots
    (files, or a folder of them). A file that exists wins over a host of that name.
    """
    to = destination(form, as_json, output)
    to.prepare()
    probes = measured_in(probe_files, to.form)
    from_folders = [paths.checks_folder(), *folders]
    with guard.standard_output_kept():
        loaded = check_files.load(from_folders)
        checks = check_files.select(loaded, only)
    if verbose:
        click.echo(f"checks from {one_line(', '.join(map(str, from_folders)), 400)}", err=True)
    inventory = resolve(targets).limited(limit)
    chosen = with_sudo(inventory.targets, sudo, ask_sudo_password)
    unsaved: list[NearsocketError] = []
    manner = Manner(
        checks=checks,
        known=frozenset({*(check.id for check in loaded), *(page.id for page in PAGES)}),
        waivers=inventory.waivers,
        near=near,
        timeout_s=timeout_s,
        parallel=parallel,
        strict=strict,
        save=save,
        scrubber=Scrubber() if scrub else None,
        unsaved=unsaved.append,
    )
    with guard.standard_output_kept():
        report = audit_targets(chosen, manner, _Progress(inventory, quiet))
    about = {check.id: check.summary for check in loaded} | {UNUSED.id: UNUSED.summary}
    wish = Wish(about, strict, probes, quiet, verbose)
    unsaved += _write(report, to, wish)
    for error in unsaved:
        say_error(error.message, error.hint)
    return worst_of([report.exit_code, EXIT_NOT_WRITTEN]) if unsaved else report.exit_code


def _write(report: Report, to: Destination, wish: Wish) -> list[NearsocketError]:
    """Write the report. Where the file cannot be written the page goes to standard output, so that nothing read is lost."""
    if to.form is Format.TERMINAL and to.path is None:
        terminal.show(report, terminal.console(sys.stdout), quiet=wish.quiet, verbose=wish.verbose)
        return []
    try:
        to.write(render(report, to.form, wish))
    except NotWritten as error:
        terminal.show(report, terminal.console(sys.stdout), quiet=wish.quiet, verbose=wish.verbose)
        return [error]
    if to.path is not None and not wish.quiet:
        click.echo(f"{to.form.value} report in {one_line(str(to.path), 400)}", err=True)
    return []


def with_sudo(targets: Sequence[Target], wanted: bool | None, ask: bool) -> tuple[Target, ...]:
    """The targets with sudo as the command line wants it, the password from the environment or asked for.

    Raises UsageError where a password is to be asked for and there is no terminal.
    """
    if wanted is not None:
        targets = [dataclasses.replace(target, sudo=(target.sudo or Sudo()) if wanted else None) for target in targets]
    if ask and not any(target.sudo for target in targets):
        raise UsageError(
            "--ask-sudo-password: expected a host that is read through sudo, found none",
            "add --sudo, or `sudo: true` in the inventory",
        )
    password = os.environ.get(options.PASSWORD_VARIABLE) or None
    if ask:
        if not sys.stdin.isatty():
            raise UsageError("--ask-sudo-password: expected a terminal, found none", f"set {options.PASSWORD_VARIABLE} instead")
        password = click.prompt("sudo password", hide_input=True, err=True)
    if password is None:
        return tuple(targets)
    if "\n" in password:
        raise UsageError(f"{options.PASSWORD_VARIABLE}: expected a password of one line, found more")
    return tuple(
        dataclasses.replace(target, sudo=dataclasses.replace(target.sudo, password=target.sudo.password or password))
        if target.sudo
        else target
        for target in targets
    )


class _Progress:
    """One line on standard error for each host as it comes, where there are several; what is being waited for, on a terminal."""

    def __init__(self, inventory: Inventory, quiet: bool) -> None:
        self.console = terminal.console(sys.stderr)
        self.quiet = quiet
        remote = [target for target in inventory.targets if target.way is Way.SSH]
        if remote and not quiet and sys.stderr.isatty():
            click.echo(f"reading {remote[0].name if len(remote) == 1 else f'{len(remote)} hosts'} over SSH", err=True)

    def __call__(self, host: HostReport, done: int, total: int) -> None:
        if total > 1 and not self.quiet:
            self.console.print(f"[{done}/{total}] ", terminal.host_line(host, self.console), sep="", soft_wrap=True)
