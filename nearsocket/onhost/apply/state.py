"""What a server has now: the generation in force as its files really are, links, units, what an earlier apply left to do."""

from __future__ import annotations

import dataclasses
import enum
import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model import generation, programs
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import MANIFEST, File, Link, Manifest
from nearsocket.onhost.apply import adopt, disk, journal
from nearsocket.onhost.apply.journal import Journal
from nearsocket.onhost.apply.systemctl import Systemctl, UnitState
from nearsocket.onhost.apply.tree import Tree


class At(str, enum.Enum):
    """What stands at the path of a managed link."""

    RIGHT = "right"
    ABSENT = "absent"
    OURS = "a link of ours to elsewhere"
    FILE = "a file"
    FOLDER = "a folder"
    OTHER = "a link to elsewhere"


@dataclass(frozen=True)
class State:
    """`manifest` is as it was written, `observed` as its files are; both None without a readable generation in force.

    `drifted`: files of it that differ, gone ones included. `damage`: why a generation in force could not be read. `links`: what
    stands at each path that was asked for; `targets`: where a link there points. `unfinished`: what the apply of the
    generation in force left to do; `void`: an apply that was cut off before its switch. `awaiting`: units of replicas that start
    when the engine that they take over from stops.
    """

    number: Optional[int]
    manifest: Optional[Manifest]
    observed: Optional[Manifest]
    contents: Mapping[str, bytes] = field(default_factory=dict)
    drifted: tuple[str, ...] = ()
    damage: Optional[str] = None
    unfinished: Optional[Journal] = None
    void: Optional[Journal] = None
    program: Optional[str] = None
    links: Mapping[str, At] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, UnitState] = field(default_factory=dict)
    boot: Optional[str] = None
    awaiting: frozenset[str] = frozenset()


def read(tree: Tree, systemctl: Systemctl, new: Optional[Manifest] = None) -> State:
    """The state, with the links and units of `new` too (None: of what is in force). Raises OSError, CommandTimeout."""
    number = tree.number()
    manifest, damage = None, None
    if number is not None:
        try:
            manifest = manifest_of(tree, number)
        except (OSError, NearsocketError) as error:
            damage = f"generation {number} cannot be read: {error}"
    observed, contents = observe(tree, number, manifest) if manifest and number is not None else (None, {})
    unfinished, void = _cut(journal.read(tree), number)
    boot = journal.this_boot(tree)
    sides = [side for side in (manifest, new) if side]
    links = {link.path: link for side in sides for link in side.links}
    paths = {*links, *(unfinished.links_removed if unfinished else ()), *(void.links_added if void else ())}
    units = {unit.name for side in sides for unit in side.units} | set(unfinished.stop if unfinished else ())
    targets = {path: target for path in paths for target in (_target(tree, path),) if target is not None}
    return State(
        number,
        manifest,
        observed,
        contents,
        drifted(manifest, observed),
        damage,
        unfinished,
        void,
        program_digest(tree),
        {path: _look(tree, path, links.get(path)) for path in paths},
        targets,
        systemctl.show(sorted(units)),
        boot,
        adopt.awaiting(tree, systemctl),
    )


def _cut(found: Optional[Journal], number: Optional[int]) -> tuple[Optional[Journal], Optional[Journal]]:
    """Unfinished and void, of what the journal has."""
    if found is None or found.to == number:
        return found, None
    earlier = found.earlier
    return (earlier if earlier and earlier.to == number else None), found


def manifest_of(tree: Tree, number: int) -> Manifest:
    """The manifest of one generation. Raises OSError, NearsocketError."""
    return generation.from_json(disk.read(tree.generation(number) / MANIFEST).decode("utf-8", "replace"))


def observe(tree: Tree, number: int, manifest: Manifest) -> tuple[Manifest, Mapping[str, bytes]]:
    """The manifest with its files as they are on the disk, those that are gone left out; and their contents."""
    entries: list[File] = []
    contents: dict[str, bytes] = {}
    for entry in manifest.files:
        path = tree.generation(number) / entry.path
        try:
            data, found = disk.read(path), os.lstat(path)
        except OSError:
            continue
        owner, group = _name(found.st_uid, pwd.getpwuid, entry.owner), _name(found.st_gid, grp.getgrgid, entry.group)
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        contents[entry.path] = data
        entries.append(File(entry.path, hashlib.sha256(data).hexdigest(), len(data), mode, owner, group))
    return dataclasses.replace(manifest, files=tuple(entries)), contents


def drifted(manifest: Optional[Manifest], observed: Optional[Manifest]) -> tuple[str, ...]:
    """The files that are not as they were written."""
    if manifest is None or observed is None:
        return ()
    found = {entry.path: entry for entry in observed.files}
    return tuple(entry.path for entry in manifest.files if found.get(entry.path) != entry)


def whole(tree: Tree, number: int, manifest: Manifest) -> bool:
    """Whether every file of that generation is as its manifest says."""
    return not drifted(manifest, observe(tree, number, manifest)[0])


def program_digest(tree: Tree) -> Optional[str]:
    """SHA-256 of the program that is installed; None where there is none."""
    try:
        return hashlib.sha256(disk.read(tree.program)).hexdigest()
    except OSError:
        return None


def _look(tree: Tree, path: str, wanted: Optional[Link]) -> At:
    try:
        mode = os.lstat(tree.at(path)).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return At.ABSENT
    if stat.S_ISDIR(mode):
        return At.FOLDER
    if not stat.S_ISLNK(mode):
        return At.FILE
    target = str(tree.at(path).readlink())
    if wanted is not None and target == wanted.target:
        return At.RIGHT
    return At.OURS if target.startswith(f"{programs.CURRENT}/") else At.OTHER


def _target(tree: Tree, path: str) -> Optional[str]:
    try:
        return str(tree.at(path).readlink())
    except OSError:
        return None


def _name(number: int, database: object, expected: str) -> str:
    """The name of a user or group. Outside root (tests) everything has one owner, which then counts as the right one."""
    if os.geteuid() != 0:
        return expected
    try:
        return str(database(number)[0])  # type: ignore[operator]
    except KeyError:
        return str(number)
