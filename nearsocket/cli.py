"""The command line: one group, one module of `nearsocket.commands` for each command, loaded when it is called."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from nearsocket import __version__
from nearsocket.model.errors import EXIT_USAGE, NearsocketError


class Late(NamedTuple):
    """A command that is loaded when it is called: `module:attribute`, and its line in the help."""

    where: str
    help: str


#: Loading late keeps `nearsocket explain` free of pyinfra's start-up. The help line stands here, so that --help loads nothing.
COMMANDS = {
    "audit": Late("nearsocket.commands.audit:audit", "Audit hosts: read each one once, write nothing there, judge with proof."),
    "explain": Late("nearsocket.commands.explain:explain", "Judge pasted text: numa_maps, an NCCL log, topo -m, numactl -H."),
    "image": Late("nearsocket.commands.image:image_group", "The patched SGLang image: apply the kit, build, verify."),
    "lab": Late("lab.cli:lab_group", "A two-socket virtual machine as a test host (in a checkout of the project)."),
    "list-checks": Late("nearsocket.commands.list_checks:list_checks", "List the checks: id, a mark on core ones, summary."),
    "plan": Late("nearsocket.commands.plan:plan", "Say what goes where on a host, what would be written there, and why."),
}


class LateGroup(click.Group):
    """A group that imports a command's module only when that command is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None where there is none. Raises NearsocketError where it cannot be loaded."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].where.partition(":")
        if not module.startswith("nearsocket."):
            _must_be_of_the_checkout(cmd_name, module.partition(".")[0])
        try:
            command: click.Command = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            found = " ".join(str(error).split())
            raise NearsocketError(f"{cmd_name}: expected {module} to load, found: {found}", "install nearsocket again") from None
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of commands, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, late.help) for name, late in sorted(COMMANDS.items())])


def _must_be_of_the_checkout(command: str, package: str) -> None:
    """Raises NearsocketError where that folder of the project is not there: a wheel has it not, and a foreign one is not ours."""
    from nearsocket.paths import source_folder

    root = source_folder()
    spec = importlib.util.find_spec(package)
    places = [] if spec is None else [Path(place).resolve() for place in spec.submodule_search_locations or ()]
    if root / package not in places:
        found = places[0] if places else "none"
        raise NearsocketError(f"{command}: expected the folder {root / package}, found {found}", f"run it in {root}")


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="nearsocket")
def cli() -> None:
    """Provision, tune and verify two-socket GPU servers for LLM inference.

    Exit codes of judging commands: 0 all pass or not applicable, 1 warnings, 2 failures, 3 a core finding is
    unknown, 64 wrong usage.
    """


def say_error(message: str, hint: str | None = None) -> None:
    """One line of error on standard error, and one of help where there is any."""
    click.echo(f"nearsocket: {message}", err=True)
    if hint:
        click.echo(f"  {hint}", err=True)


def main(args: list[str] | None = None) -> Any:
    """Run the command line and end the process with its code; a fault of the outside world is one line, no traceback."""
    try:
        code = cli.main(args=args, prog_name="nearsocket", standalone_mode=False)
    except click.exceptions.Exit as leave:
        code = leave.exit_code
    except click.UsageError as error:
        where = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
        say_error(error.format_message() + where)
        code = EXIT_USAGE
    except click.ClickException as error:
        say_error(error.format_message())
        code = EXIT_USAGE
    except NearsocketError as error:
        say_error(error.message, error.hint)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say_error("interrupted")
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
        code = 141
    except OSError as error:
        say_error(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
        code = 74
    sys.exit(code or 0)
