"""A generation's folder: built under another name, whole and on the disk before it gets its number."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

from nearsocket.model.generation import MANIFEST, File, Generation
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.state import State
from nearsocket.onhost.apply.tree import Tree

#: How many stay: the one in force and the newest others.
KEPT = 5


def next_number(tree: Tree, found: State) -> int:
    """The number of the next generation; one that a cut apply left without a switch is built anew."""
    void = found.void.to if found.void and found.void.builds else None
    return max([found.number or 0, *(number for number in tree.numbers() if number != void)]) + 1


def build(tree: Tree, generation: Generation, number: int) -> None:
    """The folder of that number is there, whole, on the disk. Raises OSError; then nothing of it is left."""
    disk.make_folders(tree.generations)
    new = tree.generations / f"{disk.TEMPORARY}{number}"
    disk.remove_tree(new)
    try:
        new.mkdir(0o755)
        for entry in generation.manifest.files:
            _make(new, entry, generation.contents[entry.path])
            _keep_time(new / entry.path, tree.current / entry.path, generation.contents[entry.path])
        disk.write_new(new / MANIFEST, generation.manifest.to_json().encode(), 0o644)
        for folder, _, _ in os.walk(new, topdown=False):
            disk.sync_folder(Path(folder))
        new.rename(tree.generation(number))
        disk.sync_folder(tree.generations)
    except OSError:
        disk.remove_tree(new)
        raise


def _make(new: Path, entry: File, data: bytes) -> None:
    path = new / entry.path
    path.parent.mkdir(0o755, parents=True, exist_ok=True)
    uid = gid = -1
    if os.geteuid() == 0:
        try:
            uid, gid = pwd.getpwnam(entry.owner).pw_uid, grp.getgrnam(entry.group).gr_gid
        except KeyError:
            raise OSError(f"expected a user {entry.owner} and a group {entry.group} on this host, found none") from None
    disk.write_new(path, data, int(entry.mode, 8), uid, gid)


def _keep_time(path: Path, before: Path, data: bytes) -> None:
    """A file as it is in force keeps its time: systemd (unit_need_daemon_reload) takes a newer one for a changed unit."""
    try:
        if disk.read(before) == data:
            found = before.stat()
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    except OSError:
        pass  # there is none, or it cannot be read: the new one has its own time


def prune(tree: Tree) -> tuple[int, ...]:
    """Remove all but the one in force and the newest others; a cut leaves a folder without a number."""
    current = tree.number()
    gone = [number for number in tree.numbers() if number != current][: -(KEPT - 1)]
    for number in gone:
        drop(tree, number)
    return tuple(gone)


def drop(tree: Tree, number: int) -> None:
    """Remove that generation, first its number, then the rest. Nothing where it is not here."""
    old = tree.generations / f"{disk.TEMPORARY}old-{number}"
    disk.remove_tree(old)
    if not disk.there(tree.generation(number)):
        return
    try:
        tree.generation(number).rename(old)
    except FileNotFoundError:
        return
    disk.sync_folder(tree.generations)
    disk.remove_tree(old)
