"""What could not be read or had to be inferred, gathered while a host is made."""

from __future__ import annotations

from typing import Any

#: A damaged snapshot must not make a report of nothing but notes.
NOTES_MAX = 200


class Notes:
    """Notes in the order they came, each once."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    def add(self, source: str, what: str) -> None:
        """One line: the source it is about, and what is missing or was inferred."""
        if len(self._lines) < NOTES_MAX:
            self._lines.setdefault(f"{source}: {what}")

    def lines(self) -> tuple[str, ...]:
        """All notes."""
        return tuple(self._lines)


def quoted(value: Any) -> str:
    """A value from outside as one short printable text, control characters escaped."""
    return ascii(value if isinstance(value, (str, int, float, bool, type(None))) else type(value).__name__)[:80]
