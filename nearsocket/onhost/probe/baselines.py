"""Baselines kept on the host: one file a key under /var/lib/nearsocket/baselines, replaced whole or not at all."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Optional

from nearsocket.model import places
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.probe import baseline
from nearsocket.model.text import one_line
from nearsocket.onhost import options
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree

FOLDER = places.BASELINES
_DIGEST = re.compile(r"[0-9a-f]{32}\Z")
_LARGEST = 1 << 20


def main(words: Sequence[str], tree: Tree = Tree()) -> bytes:  # noqa: B008 - a frozen value
    """`--digest D` gives the baseline of that key, nothing where there is none; `--keep yes` takes one from standard input."""
    given = options.parse(words, ("digest", "keep"))
    digest = given.get("digest", "")
    if not _DIGEST.match(digest):
        raise UsageError(f"expected --digest and 32 hexadecimal digits, found {one_line(digest, 60)!r}")
    if given.get("keep", "no") == "yes":
        return keep(tree, digest, sys.stdin.buffer.read(_LARGEST + 1))
    return load(tree, digest) or b""


def load(tree: Tree, digest: str) -> Optional[bytes]:
    """The file's text; None where there is none. Raises OSError."""
    try:
        return disk.read(tree.at(f"{FOLDER}/{digest}.json"), _LARGEST)
    except FileNotFoundError:
        return None


def keep(tree: Tree, digest: str, data: bytes) -> bytes:
    """Write it; the text that is there now. Raises NearsocketError for what is no baseline of that key, OSError."""
    found = baseline.from_json(data.decode("utf-8", "replace"))
    if found.key.digest != digest:
        raise NearsocketError(f"expected a baseline of the key {digest}, found one of {found.key.digest}")
    path = tree.at(f"{FOLDER}/{digest}.json")
    disk.make_folders(path.parent)
    disk.replace(path, found.to_json().encode("ascii"), 0o644)
    return found.to_json().encode("ascii")
