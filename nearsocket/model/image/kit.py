"""The patch kit: its manifest (`kit.json`), read and checked, and the edit itself. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearsocket.model.errors import UsageError
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.image-kit/1"
MANIFEST = "kit.json"
#: What a kit's folder holds beside the manifest and the texts that it names. Other files in it are nobody's.
DOCKERFILE, NOTICE = "Dockerfile", "NOTICE"
#: Between the file as it was and what is appended.
GAP = b"\n\n"

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*\Z")


@dataclass(frozen=True)
class Pinned:
    """A file that must have exactly this content: its path below the package, its SHA-256 as 64 hexadecimal digits."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Edit:
    """A file that grows: its SHA-256 before and after, and the name of the kit's text that is appended."""

    path: str
    before: str
    after: str
    append: str


@dataclass(frozen=True)
class Release:
    """A release of the engine that the kit fits: what is edited, what the edit relies on, and the wheel it was read from."""

    version: str
    wheel: Pinned
    edits: tuple[Edit, ...]
    relies_on: tuple[Pinned, ...]


@dataclass(frozen=True)
class Kit:
    """The kit: the patch's name, the variable that turns it on, the package it edits, its releases and its files."""

    patch: str
    variable: str
    package: str
    releases: tuple[Release, ...]
    files: tuple[tuple[str, bytes], ...]

    def file(self, name: str) -> bytes:
        """A file of the kit. Raises UsageError where it has none of that name."""
        for known, data in self.files:
            if known == name:
                return data
        raise UsageError(f"image kit: expected a file {name}, found none", "lay the project's templates/image/ out again")

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of the kit's files: two kits with one digest make one image."""
        whole = hashlib.sha256()
        for name, data in sorted(self.files):
            whole.update(f"{name}\0{len(data)}\0".encode())
            whole.update(data)
        return whole.hexdigest()

    @property
    def versions(self) -> str:
        """The releases as a person reads them: `0.5.22, 0.5.23`."""
        return ", ".join(release.version for release in self.releases)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path below the package that some release edits or relies on, sorted."""
        every = {edit.path for release in self.releases for edit in release.edits}
        return tuple(sorted(every | {pinned.path for release in self.releases for pinned in release.relies_on}))

    @property
    def edited(self) -> tuple[str, ...]:
        """The paths that some release edits, sorted."""
        return tuple(sorted({edit.path for release in self.releases for edit in release.edits}))


def sha256(data: bytes) -> str:
    """The SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def grown(before: bytes, addition: bytes) -> bytes:
    """The edit: the file as it was, two empty lines, the kit's text."""
    return before + GAP + addition


def read(files: Mapping[str, bytes]) -> Kit:
    """The kit from its folder's files, name to content. Raises UsageError, one line, for a manifest that cannot be used."""
    try:
        raw = json.loads(files[MANIFEST].decode("utf-8"))
    except (KeyError, ValueError):
        raise UsageError(f"image kit: expected a readable {MANIFEST}, found none") from None
    try:
        if raw["schema"] != SCHEMA:
            raise UsageError(f"{MANIFEST}: expected schema {SCHEMA}, found {one_line(str(raw['schema']), 60)}")
        texts = {_path(entry["path"]): _hash(entry["sha256"]) for entry in raw["texts"]}
        kit = Kit(
            patch=_word(raw["patch"]),
            variable=_word(raw["variable"]),
            package=_path(raw["package"]),
            releases=tuple(_release(entry) for entry in raw["releases"]),
            files=tuple((name, files[name]) for name in sorted({MANIFEST, DOCKERFILE, NOTICE, *texts}) if name in files),
        )
    except (KeyError, TypeError) as error:
        raise UsageError(f"{MANIFEST}: expected the keys of {SCHEMA}, found a fault at {one_line(str(error), 60)}") from None
    for name, expected in texts.items():
        found = sha256(kit.file(name))
        if found != expected:
            hint = "the text was changed; make the manifest anew (docs/image.md)"
            raise UsageError(f"image kit: {name}: expected sha256 {expected}, found {found}", hint)
    if not kit.releases:
        raise UsageError(f"{MANIFEST}: expected at least one release, found none")
    for release in kit.releases:
        if not release.edits:
            raise UsageError(f"{MANIFEST}: {release.version}: expected at least one edit, found none")
        paths = [edit.path for edit in release.edits] + [pinned.path for pinned in release.relies_on]
        if len(set(paths)) != len(paths):
            raise UsageError(f"{MANIFEST}: {release.version}: expected every path once, found one twice")
        for edit in release.edits:
            if edit.append not in texts:
                raise UsageError(f"{MANIFEST}: {release.version}: expected {edit.append} among the texts, found it missing")
    return kit


def _release(raw: Any) -> Release:
    return Release(
        version=_word(raw["version"]),
        wheel=Pinned(_path(raw["wheel"]["path"]), _hash(raw["wheel"]["sha256"])),
        edits=tuple(
            Edit(_path(entry["path"]), _hash(entry["before"]), _hash(entry["after"]), _path(entry["append"]))
            for entry in raw["edits"]
        ),
        relies_on=tuple(Pinned(_path(entry["path"]), _hash(entry["sha256"])) for entry in raw["relies_on"]),
    )


def _word(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_./+-]{1,80}", value):
        raise UsageError(f"{MANIFEST}: expected a word, found {one_line(repr(value), 60)}")
    return value


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not _SHA256.match(value):
        raise UsageError(f"{MANIFEST}: expected a SHA-256 of 64 hexadecimal digits, found {one_line(repr(value), 80)}")
    return value


def _path(value: Any) -> str:
    """A relative path; no part starts with a dot, so none leads out of the folder."""
    if not isinstance(value, str) or not _PATH.match(value):
        raise UsageError(f"{MANIFEST}: expected a relative path without dots in front, found {one_line(repr(value), 80)}")
    return value
