"""From the words on the command line to targets: `@local`, hosts, inventories, saved snapshots.

An existing file wins over a host of that name.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from nearsocket.control import fleet, pyinfra_inventory
from nearsocket.control.inventory import Inventory
from nearsocket.control.target import Target, Way, parse_host
from nearsocket.control.waivers import Waiver
from nearsocket.model.errors import UsageError

LOCAL = "@local"
#: What a folder of snapshots is searched for.
SNAPSHOT_SUFFIX = ".snapshot.json"
#: How the name of an inventory's file ends.
INVENTORIES = (".py", ".yaml", ".yml")
_FILES = (*INVENTORIES, ".json")
_KINDS = "a pyinfra inventory (.py), a fleet (.yaml), a snapshot (.json)"


def resolve(words: Iterable[str]) -> Inventory:
    """The targets that these words name, in their order, each once; without a word, this machine.

    Raises UsageError, one line, for a word that names nothing.
    """
    targets: dict[Target, None] = {}
    waivers: dict[Waiver, None] = {}
    for word in tuple(words) or (LOCAL,):
        found = _one(word)
        targets.update(dict.fromkeys(found.targets))
        waivers.update(dict.fromkeys(found.waivers))
    return Inventory(tuple(targets), tuple(waivers))


def _one(word: str) -> Inventory:
    if word == LOCAL:
        return Inventory((Target(socket.gethostname() or "localhost", Way.LOCAL),))
    if not word.strip():
        raise UsageError(f"expected {LOCAL}, [user@]host[:port], an inventory or snapshots, found an empty word")
    path = Path(word)
    try:
        if path.is_dir():
            return _folder(path)
        if path.exists():
            return _file(path)
    except OSError as error:
        raise UsageError(f"{word}: expected a file that can be read, found: {error.strerror}") from None
    if "/" in word or word.endswith(_FILES):
        raise UsageError(f"{word}: expected {_KINDS} or a folder of snapshots, found no such file")
    if word.startswith("@"):
        raise UsageError(f"expected {LOCAL}, [user@]host[:port], an inventory or snapshots, found {word!r}")
    return Inventory((parse_host(word),))


def _file(path: Path) -> Inventory:
    if path.suffix == ".py":
        return pyinfra_inventory.read(path)
    if path.suffix in (".yaml", ".yml"):
        return fleet.read(path)
    if path.suffix == ".json":
        return Inventory((Target(str(path), Way.FILE, file=path),))
    raise UsageError(
        f"{path}: expected {_KINDS}, found another file", f"a host of that name is written with its user or port: root@{path.name}"
    )


def _folder(path: Path) -> Inventory:
    files = sorted(file for file in path.iterdir() if file.name.endswith(SNAPSHOT_SUFFIX) and not file.name.startswith("."))
    if not files:
        raise UsageError(
            f"{path}: expected a folder with files *{SNAPSHOT_SUFFIX}, found none in it",
            f"a host of that name is written with its user or port: root@{path.name}",
        )
    return Inventory(tuple(Target(str(file), Way.FILE, file=file) for file in files))
