"""An inventory: hosts in order, with their waivers; and choosing hosts of it by pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nearsocket.control.target import Target
from nearsocket.control.waivers import Waiver
from nearsocket.model.errors import UsageError


@dataclass(frozen=True)
class Inventory:
    """Targets in the order of the file, and the waivers that hold among them."""

    targets: tuple[Target, ...]
    waivers: tuple[Waiver, ...] = ()

    def limited(self, patterns: Sequence[str]) -> Inventory:
        """Only the hosts whose name or group matches one of the patterns (`*`, `?`, `[…]`); all where there are none.

        Raises UsageError for a pattern that chooses nothing: a slip there must not look like a clean audit.
        """
        if not patterns:
            return self
        for pattern in patterns:
            if not any(_matches(target, pattern) for target in self.targets):
                known = list(dict.fromkeys(target.name for target in self.targets))  # two sides of a comparison share names
                names, more = ", ".join(known[:5]), ", …" if len(known) > 5 else ""
                raise UsageError(
                    f"--limit {pattern}: expected a host, or a group of the inventory, found none that matches",
                    f"hosts: {names}{more}",
                )
        chosen = tuple(target for target in self.targets if any(_matches(target, pattern) for pattern in patterns))
        return Inventory(chosen, self.waivers)


def _matches(target: Target, pattern: str) -> bool:
    """By name or group; a saved snapshot also by its host's name, which its file is called by."""
    file = (target.file.name.removesuffix(".json").removesuffix(".snapshot"),) if target.file else ()
    return any(fnmatchcase(name, pattern) for name in (target.name, *file, *target.groups))
