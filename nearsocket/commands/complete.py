"""What a shell offers at the Tab key where click does not know it by itself."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from nearsocket.model.errors import NearsocketError


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders; `@local` as well."""
    local = [CompletionItem("@local")] if "@local".startswith(incomplete) and incomplete else []
    return [*local, CompletionItem(incomplete, type="file")]


def checks(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the checks, with what must be true; nothing where they cannot be loaded."""
    from nearsocket import paths
    from nearsocket.control import guard
    from nearsocket.control.checks import load

    try:
        with guard.standard_output_kept():
            loaded = load([paths.checks_folder()])
    except NearsocketError:
        return []
    return [CompletionItem(check.id, help=check.summary) for check in loaded if check.id.startswith(incomplete)]
