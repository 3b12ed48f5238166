"""What an apply that was cut short has left to do, on the disk from before its first change until after its last."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Optional

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
    """Work for the generation `to`. Where another one is in force, the switch never came: then `links_added` and, where it
    `builds`, the generation itself are leftovers, and `earlier` is what was left to do for the one that is in force. `boot`: the
    boot that it was written in; one that came later started everything from the links as they were by then.
    """

    to: int
    builds: bool = False
    links_added: tuple[str, ...] = ()
    links_removed: tuple[str, ...] = ()
    reload: bool = False
    restart: tuple[Restart, ...] = ()
    stop: tuple[str, ...] = ()
    earlier: Optional[Journal] = None
    boot: Optional[str] = None


def write(tree: Tree, journal: Journal) -> None:
    """The journal is on the disk when this returns. Raises OSError."""
    disk.make_folders(tree.journal.parent)
    disk.replace(tree.journal, (json.dumps(dataclasses.asdict(journal), indent=1) + "\n").encode(), 0o600)


def clear(tree: Tree) -> None:
    """Nothing is left to do."""
    if disk.remove(tree.journal):
        disk.sync_folder(tree.journal.parent)


def read(tree: Tree) -> Optional[Journal]:
    """The journal; None where there is none. One that cannot be read was changed by hand, and counts as none."""
    try:
        return _from(json.loads(disk.read(tree.journal).decode("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def this_boot(tree: Tree) -> Optional[str]:
    """The kernel's id of this boot; None where it has none to give."""
    try:
        return tree.at("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _from(value: dict[str, Any]) -> Journal:
    return Journal(
        int(value["to"]),
        bool(value["builds"]),
        tuple(map(str, value["links_added"])),
        tuple(map(str, value["links_removed"])),
        bool(value["reload"]),
        tuple(Restart(entry["unit"], entry["mount"], entry["before"]) for entry in value["restart"]),
        tuple(map(str, value["stop"])),
        _from(value["earlier"]) if value["earlier"] else None,
        value["boot"],
    )
