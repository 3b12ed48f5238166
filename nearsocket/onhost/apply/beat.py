"""The sign of life of a rollout's client, on this host's disk. No lock: an apply holds that for as long as models load."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout import beat
from nearsocket.model.rollout.beat import Beat, Seen
from nearsocket.onhost import options
from nearsocket.onhost.apply import disk, progress
from nearsocket.onhost.apply.tree import Tree


def main(words: Sequence[str], given: bytes) -> None:
    """The action `rollout-beat`: keep the beat on standard input; with `--bye yes` the client goes, and its beat with it.

    Raises NearsocketError where the host is another client's by now, and for a text that is none; OSError.
    """
    said = options.parse(words, ("bye", "root"))
    tree = Tree(Path(said.get("root", "/")))
    if len(given) > beat.LARGEST_BYTES:
        raise NearsocketError(f"expected at most {beat.LARGEST_BYTES} bytes of {beat.SCHEMA}, found more")
    made = beat.beat_from(given.decode("utf-8", "replace"))
    if said.get("bye") == "yes":
        forget(tree, made)
    else:
        keep(tree, made)


def answer(words: Sequence[str]) -> bytes:
    """The action `rollout-seen`: who showed itself here last, as JSON. Raises UsageError."""
    tree = Tree(Path(options.parse(words, ("root",)).get("root", "/")))
    return beat.seen_to_json(seen(tree)).encode("ascii")


def keep(tree: Tree, made: Beat) -> None:
    """The client is here, now. Nothing on a host on which nothing of ours is yet: a beat is no change of it. Raises
    NearsocketError where the host is another client's, OSError."""
    here = progress.read(tree)
    if here is not None and here.key not in (made.key, made.over):
        raise NearsocketError(
            "expected this client's host, found another client at work on it", "whoever came later has the host now"
        )
    if tree.beat.parent.is_dir():
        disk.replace(tree.beat, made.to_json().encode("ascii"), 0o600)


def forget(tree: Tree, made: Beat) -> None:
    """The client is at the end of its turn. Another one's beat stays. Raises OSError."""
    found = _read(tree)
    if found is not None and found.key == made.key:
        disk.remove(tree.beat)


def seen(tree: Tree) -> Optional[Seen]:
    """The last beat, and how long ago it was made; None where there is none, or none that can be read.

    A host that was down could not be told: time counts from its boot at most. A clock that was set back makes no age below 0.
    """
    found = _read(tree)
    if found is None:
        return None
    try:
        age_s = time.time() - os.lstat(tree.beat).st_mtime
    except OSError:
        return None
    return Seen(found, round(max(0.0, min(age_s, _uptime_s(tree))), 1))


def _read(tree: Tree) -> Optional[Beat]:
    try:
        return beat.beat_from(disk.read(tree.beat, beat.LARGEST_BYTES).decode("utf-8", "replace"))
    except (OSError, NearsocketError):
        return None


def _uptime_s(tree: Tree) -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return float(tree.at("/proc/uptime").read_text(encoding="ascii").split()[0])
    return float("inf")
