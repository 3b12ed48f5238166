"""Options of the program's actions: `--name value` or `--name=value`, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nearsocket.model.errors import UsageError
from nearsocket.model.text import one_line


def parse(words: Sequence[str], known: Sequence[str]) -> Mapping[str, str]:
    """Name (without its dashes) to value; the last one of a name wins. Raises UsageError for anything else."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name[:2] != "--" or name[2:] not in known:
            raise UsageError(f"expected {' or '.join(f'--{word}' for word in known) or 'no option'}, found {one_line(name, 60)!r}")
        if not equals:
            if not rest:
                raise UsageError(f"expected a value behind {name!r}")
            value = rest.pop(0)
        found[name[2:]] = value
    return found


def seconds(text: str, lowest: float, highest: float) -> float:
    """A time limit. Raises UsageError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not lowest <= value <= highest:
        raise UsageError(f"expected a time limit from {lowest:g} to {highest:g} seconds, found {one_line(text, 40)!r}")
    return value
