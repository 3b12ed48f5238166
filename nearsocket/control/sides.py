"""The two sides of a comparison: what each word names, each host once, and chosen by name on both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearsocket.control import snapshots
from nearsocket.control.inventory import Inventory
from nearsocket.control.target import Target
from nearsocket.control.targets import INVENTORIES, resolve
from nearsocket.model.errors import UsageError
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.text import one_line


@dataclass(frozen=True)
class Side:
    """One side. A saved snapshot's target has its host's name; `single`: the word names a file or a host, no folder or fleet."""

    targets: tuple[Target, ...]
    saved: Mapping[Target, Snapshot]
    single: bool

    def limited(self, names: frozenset[str]) -> Side:
        """Only the hosts of these names."""
        return dataclasses.replace(self, targets=tuple(target for target in self.targets if target.name in names))


def sides(before: str, after: str, patterns: Sequence[str]) -> tuple[Side, Side, bool]:
    """Both sides, and whether they are two single ones: a pair whatever their names are.

    `patterns` choose hosts by name, or by a group of an inventory on either side, and then hold for both sides; two single ones
    stay a pair. No host is read. Raises UsageError for a word that names nothing, for a snapshot that is none, for a host that is
    on one side twice, and for a pattern that chooses nothing on either side.
    """
    earlier, later = _side(before), _side(after)
    pair = earlier.single and later.single
    if patterns:
        chosen = Inventory((*earlier.targets, *later.targets)).limited(patterns)
        names = frozenset(target.name for target in chosen.targets)
        if not pair:
            earlier, later = earlier.limited(names), later.limited(names)
    return earlier, later, pair


def _side(word: str) -> Side:
    saved: dict[Target, Snapshot] = {}
    targets: list[Target] = []
    files: dict[str, Path] = {}
    for target in resolve([word]).targets:
        if target.file is None:
            targets.append(target)
            continue
        snapshot = snapshots.from_file(target.file)
        first = files.setdefault(snapshot.host, target.file)
        if first != target.file:
            raise UsageError(
                f"{word}: expected each host once, found {one_line(snapshot.host, 100)!r} in {first.name} and {target.file.name}",
                "move one of the two files away",
            )
        targets.append(dataclasses.replace(target, name=snapshot.host))
        saved[targets[-1]] = snapshot
    return Side(tuple(targets), saved, not Path(word).is_dir() and not word.endswith(INVENTORIES))
