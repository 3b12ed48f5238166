"""The command line: one group, one module of `nearsocket.commands` for each command, loaded when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from nearsocket import __version__
from nearsocket.model.errors import EXIT_USAGE, NearsocketError

#: Command name to "module:attribute". Loading late keeps `nearsocket explain` free of pyinfra's start-up.
COMMANDS = {
    "audit": "nearsocket.commands.audit:audit",
    "explain": "nearsocket.commands.explain:explain",
    "lab": "lab.cli:lab_group",
    "list-checks": "nearsocket.commands.list_checks:list_checks",
    "plan": "nearsocket.commands.plan:plan",
}


class LateGroup(click.Group):
    """A group that imports a command's module only when that command is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


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
