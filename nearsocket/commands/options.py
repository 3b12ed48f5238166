"""Options that several commands have."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nearsocket.model import cpulist
from nearsocket.model.text import one_line

_LONGEST_LINE = 1000
PASSWORD_VARIABLE = "NEARSOCKET_SUDO_PASSWORD"  # noqa: S105 - the name of a variable, not a password
DEFAULT_TIMEOUT_S = 60.0


def say_error(message: str, hint: str | None = None) -> None:
    """One line of error on standard error, and one of help, if it takes them."""
    try:
        click.echo(f"nearsocket: {one_line(message, _LONGEST_LINE)}", err=True)
        if hint:
            click.echo(f"  {one_line(hint, _LONGEST_LINE)}", err=True)
    except (OSError, ValueError):
        pass  # the exit code still says it


class Number(click.FloatRange):
    """A number in a range. `nan` is none: it compares with nothing, and so no range would refuse it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error for what is none."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a number, found {value!r}", param, ctx)
        return number


class Folder(click.Path):
    """A folder, there or to be made. The empty text is none: it would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a usage error for what is none."""
        if value == "":
            self.fail("expected a folder, found an empty text", param, ctx)
        return super().convert(value, param, ctx)


class Nodes(click.ParamType[frozenset[int]]):
    """A list of nodes such as `0` or `0-1,3`."""

    name = "nodes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        """The set of these nodes."""
        if isinstance(value, frozenset):
            return value
        try:
            nodes = cpulist.parse(str(value))
        except ValueError as error:
            self.fail(f"{error}", param, ctx)
        return nodes or self.fail("expected a list of nodes such as 0 or 0-1,3, found nothing", param, ctx)


#: The user's word on where the GPUs are.
near = click.option("--near", type=Nodes(), metavar="NODES", help="The GPUs' nodes, such as 0 or 0-1, where nothing else tells.")


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that reads hosts: `timeout_s`, `parallel`, `sudo` and `ask_sudo_password`."""
    sudo = f"Read through sudo, or not, whatever the inventory says. Password: {PASSWORD_VARIABLE}."
    limit, many = Number(1, 3600), click.IntRange(1, 256)
    seconds = "Seconds for each host."
    for option in (
        click.option("--ask-sudo-password", is_flag=True, help="Ask for sudo's password once, for all hosts."),
        click.option("--sudo/--no-sudo", default=None, help=sudo),
        click.option("--parallel", type=many, default=16, show_default=True, metavar="N", help="Hosts at a time."),
        click.option("--timeout", "timeout_s", type=limit, default=DEFAULT_TIMEOUT_S, show_default=True, metavar="S", help=seconds),
    ):
        command = option(command)
    return command
