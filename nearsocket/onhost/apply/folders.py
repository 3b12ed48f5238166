"""Folders outside nearsocket's own that an apply had to make: written down before, so that leaving can take them away again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree


def made(tree: Tree) -> tuple[str, ...]:
    """The folders that were made, as on `/`; none where the record is missing or was changed by hand."""
    try:
        value = json.loads(disk.read(tree.folders).decode("utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(str(path) for path in value) if isinstance(value, list) else ()


def note(tree: Tree, needed: Iterable[Path]) -> None:
    """Write down those above the needed folders that are not there yet. Raises OSError."""
    own = {tree.at(path) for path in ("/etc/nearsocket", "/usr/local/lib/nearsocket", "/var/lib/nearsocket", "/run/nearsocket")}
    missing: set[str] = set()
    for start in (*needed, *own):
        folder = start
        while folder != tree.root and not folder.is_dir():
            if folder not in own and not own & set(folder.parents):
                missing.add(f"/{folder.relative_to(tree.root)}")
            folder = folder.parent
    before = made(tree)
    if missing - set(before):
        disk.make_folders(tree.folders.parent)
        disk.replace(tree.folders, (json.dumps(sorted(missing | set(before))) + "\n").encode(), 0o600)


def take_away(tree: Tree, folders: Iterable[str]) -> None:
    """Remove those of the folders that are empty now, the deepest first."""
    for path in sorted(folders, key=len, reverse=True):
        try:
            tree.at(path).rmdir()
        except OSError:
            continue  # somebody else put something there, or it is gone
