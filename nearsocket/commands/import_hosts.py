"""`nearsocket import`: engines that run become replicas of a fleet file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import click

from nearsocket.commands import options
from nearsocket.commands.audit import with_sudo
from nearsocket.commands.options import say_error
from nearsocket.control.importing import write
from nearsocket.control.importing.hosts import imports
from nearsocket.control.targets import resolve
from nearsocket.model.errors import NearsocketError, UsageError

EXIT_LEFT_OUT = 2


@click.command(name="import")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the fleet file there; one that exists is not overwritten. Standard output where left out.",
)
@click.option("--json", "as_json", is_flag=True, help="Write nearsocket.import/1 to standard output, nothing else.")
@options.reaching
def import_hosts(
    targets: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    timeout_s: float,
    parallel: int,
    sudo: bool | None,
    ask_sudo_password: bool,
) -> int:
    """Write what runs on hosts as a fleet file that renders to the same containers. Nothing is changed on a host.

    TARGET: @local, [user@]host[:port], an inventory, or saved snapshots. Secrets become references to files; what cannot be
    carried over stands in the file as a comment, with the reason.

    Exit codes: 0 done or nothing to do, 2 a host could not be read or an engine could not become a replica, 64 wrong usage.
    """
    if output is not None and output.exists():
        raise UsageError(f"{output}: expected a new file, found one that is there", "choose another name, or move it away")
    chosen = with_sudo(resolve(targets).targets, sudo, ask_sudo_password)
    found, failed = imports(chosen, timeout_s, parallel)
    made = [entry for _, entry in found]
    code = EXIT_LEFT_OUT if failed or any(entry.lost for entry in made) else 0
    text = write.to_yaml(made, {entry.host: target for target, entry in found})
    if output is not None:
        _write(output, text)
    if as_json:
        click.echo(write.to_json(made, failed, code))
    elif output is None:
        click.echo(text, nl=False)
    for name, reason in failed.items():
        say_error(f"{name}: {reason}")
    for entry in made:
        left = f", {len(entry.left)} things are not carried (see the comments)" if entry.left else ""
        click.echo(f"{entry.host}: {len(entry.found)} engines imported, {entry.lost} left out{left}", err=True)
    return code


def _write(path: Path, text: str) -> None:
    """The file, whole or not at all, and never over another. Raises NearsocketError."""
    new = ""
    try:
        handle, new = tempfile.mkstemp(prefix=".nearsocket-", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(path).hardlink_to(new)
        path.chmod(0o644)
    except OSError as error:
        raise NearsocketError(f"{path}: expected to write the fleet file, found: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            if new:
                Path(new).unlink()
