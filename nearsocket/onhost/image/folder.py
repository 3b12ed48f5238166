"""Reads from a folder what the patch kit looks at."""

from __future__ import annotations

import importlib.util
import os
import posixpath
import stat
from pathlib import Path
from typing import Optional

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image.kit import Kit
from nearsocket.model.image.tree import PYC_HEAD_BYTES, Entry, Kind
from nearsocket.model.text import one_line

#: A source file of the engine is far below this; more is a wrong file.
MOST_BYTES = 16 << 20


def package_folder(root: Path, kit: Kit) -> Path:
    """The package below `root`. Raises UsageError where there is none, or where `root` is the package itself."""
    package = root / kit.package
    if package.is_dir():
        return package
    hint = f"give the folder that holds {kit.package}/ (site-packages, or a checkout's python/)"
    raise UsageError(f"--root: expected a folder {kit.package} in {one_line(str(root), 200)}, found none", hint)


def installed_root(kit: Kit) -> Path:
    """Where this interpreter would import the package from, without importing it. Raises NearsocketError where it would not."""
    spec = importlib.util.find_spec(kit.package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if len(places) != 1:
        raise NearsocketError(
            f"expected this Python to find one package {kit.package}, found {len(places)}", "give its folder with --root"
        )
    place = Path(places[0])
    if place.name != kit.package:
        raise NearsocketError(f"expected a folder named {kit.package}, found {one_line(str(place), 200)}")
    return place.parent


def read_tree(package: Path, kit: Kit) -> dict[str, Entry]:
    """The files that the kit names, and the folders of those that it edits, one level and `__pycache__`.

    Raises OSError where one cannot be read, NearsocketError where one is too large for a source file.
    """
    tree = {}
    for path in kit.paths:
        entry = _entry(package / path, MOST_BYTES)
        if entry:
            tree[path] = entry
    for folder in sorted({posixpath.dirname(path) for path in kit.edited}):
        for below in (folder, posixpath.join(folder, "__pycache__")):
            if not (package / below).is_dir():
                continue
            for file in sorted((package / below).iterdir()):
                path = posixpath.join(below, file.name)
                if path not in tree:
                    found = _entry(file, PYC_HEAD_BYTES if file.suffix == ".pyc" else 0)
                    if found:
                        tree[path] = found
    return tree


def _entry(path: Path, most: int) -> Optional[Entry]:
    """What is there, a file's first `most` bytes with it; a whole file where `most` is MOST_BYTES. None where nothing is."""
    try:
        kind = kind_of(path.lstat().st_mode)
        if kind is not Kind.FILE or not most:
            return Entry(kind)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if most == MOST_BYTES and len(data) > most:
        raise NearsocketError(f"{one_line(str(path), 200)}: expected a source file below {most >> 20} MiB, found more")
    return Entry(kind, data[:most])


def kind_of(mode: int) -> Kind:
    """The kind that a file mode says."""
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER
