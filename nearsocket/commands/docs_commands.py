"""A documentation page for each command, from what `--help` says; `commands.docs` writes them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from nearsocket.cli import COMMANDS, cli

MADE = "<!-- Made by `make docs` from the command's own help; change it there. -->\n"
_SETTINGS = {"max_content_width": 10_000, "terminal_width": 10_000}


def pages() -> dict[str, str]:
    """File name to text, under docs/commands: a page for each command, and README.md as their index."""
    top = click.Context(cli, info_name="nearsocket", **_SETTINGS)  # type: ignore[arg-type]
    made = {}
    for name in sorted(COMMANDS):
        command = cli.get_command(top, name)
        if command is not None:
            made[f"{name}.md"] = MADE + "\n\n".join(_page(command, name, top, "#")) + "\n"
    rows = "\n".join(f"| [nearsocket {name}]({name}.md) | {_cell(late.help)} |" for name, late in sorted(COMMANDS.items()))
    intro = "\n\n".join(_paragraphs(cli.help or ""))
    made["README.md"] = f"{MADE}# Commands\n\n{intro}\n\n| command | does |\n| --- | --- |\n{rows}\n"
    return made


def _page(command: click.Command, name: str, parent: click.Context, mark: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent, **_SETTINGS)  # type: ignore[arg-type]
    yield f"{mark} {context.command_path}"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"```\n{usage}\n```"
    yield from _paragraphs(command.help or "")
    records = [record for parameter in command.params if (record := parameter.get_help_record(context)) and record[1]]
    if records:
        rows = "\n".join(f"| `{_code(option)}` | {_cell(said)} |" for option, said in records)
        yield f"| option | does |\n| --- | --- |\n{rows}"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                yield from _page(found, inner, context, mark + "#")


def _paragraphs(text: str) -> list[str]:
    """The help's paragraphs; click's mark for one that must not be wrapped goes."""
    paragraphs = inspect.cleandoc(text).replace("\b\n", "").split("\n\n")
    return [paragraph.replace("*", "\\*").replace("<", "\\<") for paragraph in paragraphs if paragraph.strip()]


def _cell(text: str) -> str:
    return _code(text).replace("*", "\\*").replace("<", "\\<")


def _code(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
