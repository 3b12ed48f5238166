"""What an apply still has to do after its switch, on the disk, so that the next run completes what was cut short."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Optional

from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree


@dataclass(frozen=True)
class Restart:
    """A unit to restart, and the mount unit that has to go down and up with it. `before`: its invocation when the restart began."""

    unit: str
    mount: Optional[str] = None
    before: Optional[str] = None


@dataclass(frozen=True)
class Journal:
    """Work for the generation `to`. Where another one is in force, the switch never came and only `links_added` matters."""

    to: int
    links_added: tuple[str, ...] = ()
    links_removed: tuple[str, ...] = ()
    reload: bool = False
    restart: tuple[Restart, ...] = ()
    stop: tuple[str, ...] = ()


def write(tree: Tree, journal: Journal) -> None:
    """The journal is on the disk when this returns. Raises OSError."""
    disk.replace(tree.journal, (json.dumps(dataclasses.asdict(journal), indent=1) + "\n").encode(), 0o600)


def clear(tree: Tree) -> None:
    """Nothing is left to do."""
    if disk.remove(tree.journal):
        disk.sync_folder(tree.journal.parent)


def read(tree: Tree) -> Optional[Journal]:
    """The journal; None where there is none. One that cannot be read was changed by hand, and counts as none."""
    try:
        value = json.loads(disk.read(tree.journal).decode("utf-8"))
        return Journal(
            int(value["to"]),
            tuple(map(str, value["links_added"])),
            tuple(map(str, value["links_removed"])),
            bool(value["reload"]),
            tuple(Restart(entry["unit"], entry["mount"], entry["before"]) for entry in value["restart"]),
            tuple(map(str, value["stop"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
