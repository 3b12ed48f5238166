"""A freeze: until a day nothing is to be changed on a host. Said in the inventory or in a file on the host. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.text import one_line

#: Anybody with root on the host can freeze it, whatever the inventory says.
FILE = "/etc/nearsocket/freeze"
#: Where the overriding of a freeze is written down on the host.
LOG = "/var/lib/nearsocket/overrides.log"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_LINE = re.compile(r"(until|reason)\s*[:=]\s*(.*\S)\s*\Z")


@dataclass(frozen=True)
class Freeze:
    """`until`: the last day of it (ISO date, UTC), None where it has no end. `by`: who says so, the inventory or a file."""

    until: Optional[str]
    reason: str
    by: str

    def over(self, today: str) -> bool:
        """Whether it ended before that day (ISO date)."""
        return self.until is not None and today > self.until

    def __str__(self) -> str:
        """`frozen until 2026-12-31 by the inventory: audit week`."""
        end = f" until {self.until}" if self.until else ""
        return one_line(f"frozen{end} by {self.by}: {self.reason}", 400)


def parse(text: str, by: str) -> Freeze:
    """The freeze that a file's `until: DAY` and `reason: WORDS` say. Whatever else stands there freezes without an end:

    a slip in the file must not thaw the host.
    """
    said: dict[str, str] = {}
    loose: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        match = _LINE.match(words)
        if match:
            said[match[1]] = match[2].strip("\"'")
        elif words and not words.startswith("#"):
            loose.append(words)
    until = said.get("until")
    if until is not None and not _DAY.match(until):
        loose.append(f"until {until}, which is no day such as 2030-01-31")
        until = None
    reason = "; ".join([*([said["reason"]] if "reason" in said else []), *loose])
    return Freeze(until, one_line(reason, 300) or "no reason given", by)


def from_value(value: Optional[dict[str, Any]]) -> Optional[Freeze]:
    """From JSON's own values. Raises KeyError, TypeError."""
    return None if value is None else Freeze(value["until"], str(value["reason"]), str(value["by"]))
