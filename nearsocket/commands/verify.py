"""`nearsocket verify`: judges running replicas now, as their starts were judged."""

from __future__ import annotations

import sys

import click

from nearsocket.commands import options
from nearsocket.commands.audit import with_sudo
from nearsocket.control import verify as proofs
from nearsocket.control.targets import resolve
from nearsocket.model.exitcode import worst_of, worst_status
from nearsocket.report import terminal
from nearsocket.report import verdicts as pages


@click.command()
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Write nearsocket.verify/1 to standard output, nothing else.")
@click.option("--replica", metavar="NAME", help="Only this replica of each host.")
@click.option("--limit", multiple=True, metavar="PATTERN", help="Only these hosts or groups of the inventory; may be repeated.")
@click.option("--strict", is_flag=True, help="Every unknown is 3, every warning 2.")
@options.reaching
@click.option("-v", "--verbose", is_flag=True, help="Every finding, its evidence whole.")
def verify(
    targets: tuple[str, ...],
    as_json: bool,
    replica: str | None,
    limit: tuple[str, ...],
    strict: bool,
    timeout_s: float,
    parallel: int,
    sudo: bool | None,
    ask_sudo_password: bool,
    verbose: bool,
) -> int:
    """Prove where the buffers of managed, running replicas lie now. Nothing is written on a host, no engine is asked anything.

    TARGET: @local (default), [user@]host[:port], or an inventory.

    Exit codes: 0 all pass or not applicable, 1 warnings, 2 failures, 3 a core finding is unknown or there is nothing to prove,
    64 wrong usage.
    """
    inventory = resolve(targets).limited(limit)
    chosen = with_sudo(inventory.targets, sudo, ask_sudo_password)
    hosts = proofs.verify(chosen, timeout_s, parallel, replica)
    code = worst_of(host.code(strict) for host in hosts)
    shown = [proofs.page(host) for host in hosts]
    if as_json:
        click.echo(pages.render(shown, worst_status(host.status for host in hosts), code))
    else:
        pages.show(shown, terminal.console(sys.stdout), verbose)
    return code
