"""What lies in the engine's package, as far as the patch is concerned, and the verdict on it. Pure.

A hash alone does not say what Python will run: a compiled module or a package of the same name comes before the file, and
bytecode that is marked as unchecked is run without a look at it. These are looked for too.
"""

from __future__ import annotations

import enum
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.image.kit import Kit, Release, sha256
from nearsocket.model.text import one_line

#: Bytes of a bytecode file that are needed: magic number and flags (PEP 552).
PYC_HEAD_BYTES = 8


class Kind(enum.Enum):
    """What a path is."""

    FILE = "a file"
    FOLDER = "a folder"
    LINK = "a symbolic link"
    OTHER = "a special file"


@dataclass(frozen=True)
class Entry:
    """One path: what it is, and for a file its content (its head for bytecode, empty where it was not needed)."""

    kind: Kind
    data: bytes = b""


#: Path below the package to what is there. The folders of edited files are whole, one level and `__pycache__`.
Tree = Mapping[str, Entry]


class State(enum.Enum):
    """How a package stands to the kit."""

    PATCHED = "patched"
    UNPATCHED = "unpatched"
    PARTLY = "partly patched"
    FOREIGN = "not what the kit was made for"


@dataclass(frozen=True)
class Mismatch:
    """A file with other content than expected: pairs of SHA-256 and whose it is; `found` is None where there is no such file."""

    path: str
    expected: tuple[tuple[str, str], ...]
    found: Optional[str]

    def __str__(self) -> str:
        owners: dict[str, list[str]] = {}
        for digest, owner in self.expected:
            owners.setdefault(digest, []).append(owner)
        words = [f"{digest} ({', '.join(whose)})" for digest, whose in owners.items()]
        return f"{self.path}: expected sha256 {' or '.join(words)}, found {self.found or 'none'}"


@dataclass(frozen=True)
class Verdict:
    """The state, the release it belongs to (the closest one where it is foreign), and what does not fit.

    `shadows`: what Python loads instead of an edited file, a line each. `unchecked`: paths of bytecode that it would run
    without a look at an edited file.
    """

    state: State
    release: Release
    mismatches: tuple[Mismatch, ...] = ()
    shadows: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def judge(kit: Kit, tree: Tree) -> Verdict:
    """How the tree stands to the kit's releases. A release whose files all match wins, else the one that misses least."""
    verdicts = [_against(release, tree) for release in kit.releases]
    best = min(verdicts, key=lambda verdict: len(verdict.mismatches))
    near = [verdict for verdict in verdicts if len(verdict.mismatches) == len(best.mismatches)]
    return Verdict(
        best.state,
        best.release,
        tuple(_joined(near, mismatch) for mismatch in best.mismatches),
        tuple(line for path in kit.edited for line in _shadows(path, tree)),
        tuple(name for path in kit.edited for name in _unchecked(path, tree)),
    )


def demand(verdict: Verdict, kit: Kit, where: str, unchecked: bool = False) -> None:
    """Raises NearsocketError, expected and found, where the package is no release of the kit or Python would not run its files.

    `unchecked`: bytecode that is not checked is no fault, because it will be removed.
    """
    if verdict.state is State.FOREIGN:
        text = "; ".join(f"{kit.package}/{mismatch}" for mismatch in verdict.mismatches)
        raise NearsocketError(f"{where}: {text}", f"the kit {kit.patch} fits SGLang {kit.versions} as released, unchanged")
    if verdict.shadows:
        raise NearsocketError(f"{where}: {'; '.join(verdict.shadows)}", "take an image that was built without it")
    if verdict.unchecked and not unchecked:
        names = one_line(", ".join(verdict.unchecked), 200)
        raise NearsocketError(
            f"{where}: expected bytecode that is checked against its source, found unchecked bytecode: {names}", "remove it"
        )


def _against(release: Release, tree: Tree) -> Verdict:
    mismatches, states = [], set()
    for edit in release.edits:
        found = _hash(tree, edit.path)
        states.add(found == edit.after)
        if found not in (edit.before, edit.after):
            expected = {edit.before: release.version, edit.after: f"{release.version} patched"}
            mismatches.append(Mismatch(edit.path, tuple(expected.items()), _shown(tree, edit.path)))
    for pinned in release.relies_on:
        if _hash(tree, pinned.path) != pinned.sha256:
            mismatches.append(Mismatch(pinned.path, ((pinned.sha256, release.version),), _shown(tree, pinned.path)))
    if mismatches:
        return Verdict(State.FOREIGN, release, tuple(mismatches))
    if states == {True}:
        return Verdict(State.PATCHED, release)
    return Verdict(State.UNPATCHED if states == {False} else State.PARTLY, release)


def _joined(verdicts: list[Verdict], mismatch: Mismatch) -> Mismatch:
    """The mismatch with what every one of these verdicts expects at its path."""
    every = [pair for verdict in verdicts for found in verdict.mismatches if found.path == mismatch.path for pair in found.expected]
    return Mismatch(mismatch.path, tuple(dict.fromkeys(every)), mismatch.found)


def _hash(tree: Tree, path: str) -> Optional[str]:
    entry = tree.get(path)
    return sha256(entry.data) if entry and entry.kind is Kind.FILE else None


def _shown(tree: Tree, path: str) -> Optional[str]:
    entry = tree.get(path)
    if entry is None:
        return None
    return f"sha256 {sha256(entry.data)}" if entry.kind is Kind.FILE else entry.kind.value


def _shadows(path: str, tree: Tree) -> Iterator[str]:
    """Extension modules and packages come before the source file (importlib's FileFinder)."""
    folder, stem = posixpath.dirname(path), posixpath.basename(path)[: -len(".py")]
    for name, entry in sorted(tree.items()):
        base = posixpath.basename(name)
        first = (base.startswith(stem + ".") and base.endswith(".so")) or (base == stem and entry.kind is not Kind.FILE)
        if posixpath.dirname(name) == folder and first:
            yield f"expected Python to load {path}, found {entry.kind.value} that it loads instead: {one_line(name, 120)}"


def _unchecked(path: str, tree: Tree) -> Iterator[str]:
    """Bit 0 of the flags: the bytecode carries a hash instead of a time; bit 1: that hash is checked (PEP 552)."""
    folder, stem = posixpath.dirname(path), posixpath.basename(path)[: -len(".py")]
    for name, entry in sorted(tree.items()):
        base = posixpath.basename(name)
        flags = int.from_bytes(entry.data[4:PYC_HEAD_BYTES], "little")
        mine = base.startswith(stem + ".") and base.endswith(".pyc")
        if mine and posixpath.dirname(name) == posixpath.join(folder, "__pycache__") and flags & 0b11 == 0b01:
            yield name
