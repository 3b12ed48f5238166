"""Kernel settings that a generation sets at once and not only at the next boot; the value before is recorded, and comes back.

They are the manifest's sysctl keys, and the `w` lines of its tmpfiles.d files (sysfs has no sysctl).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from nearsocket.model.generation import Manifest
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree

_WRITE = re.compile(r"^w\+?!?\s+(/sys/\S+)(?:\s+\S+){4}\s+(\S+)\s*$", re.MULTILINE)
_CHOSEN = re.compile(r"\[([^\]\s]+)\]")


@dataclass(frozen=True)
class Kept:
    """A setting that we changed: the value before, and the one that was set."""

    old: str
    set: str


@dataclass(frozen=True)
class Setting:
    """A value to write to a path of /proc/sys or /sys. `restore`: it is the one from before us."""

    path: str
    value: str
    restore: bool = False


def wanted(manifest: Manifest, contents: Mapping[str, bytes]) -> Mapping[str, str]:
    """Path to value, of a whole generation."""
    found = {f"/proc/sys/{key.replace('.', '/')}": value for key, value in manifest.sysctl.items()}
    for path in manifest.reapply:
        if path.startswith("tmpfiles.d/") and path in contents:
            found.update(_WRITE.findall(contents[path].decode("utf-8", "replace")))
    return found


def live(tree: Tree, path: str) -> Optional[str]:
    """The value in force, of a choice the chosen word; None where it cannot be read."""
    try:
        with tree.at(path).open(encoding="utf-8", errors="replace") as stream:
            text = stream.read(4096).strip()
    except OSError:
        return None
    chosen = _CHOSEN.search(text)
    return chosen[1] if chosen else " ".join(text.split())


def kept(tree: Tree) -> Mapping[str, Kept]:
    """What was changed before. Raises OSError where the record is damaged: old values must not be lost over it."""
    try:
        value = json.loads(disk.read(tree.values).decode("utf-8"))
        return {path: Kept(str(entry["old"]), str(entry["set"])) for path, entry in value.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OSError(f"expected old values in {tree.values}, found: {one_line(str(error), 80)}") from None


def decide(tree: Tree, want: Mapping[str, str]) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """What has to be written, and notes on what cannot be or is left alone."""
    before, settings, notes = kept(tree), [], []
    for path in sorted(want):
        now = live(tree, path)
        if now is None:
            notes.append(f"{path}: this kernel has no such setting; left out")
        elif now != want[path]:
            settings.append(Setting(path, want[path]))
    for path in sorted(before.keys() - want.keys()):
        now = live(tree, path)
        if now not in (before[path].set, before[path].old):
            notes.append(f"{path}: is {now} by another hand, so the value before, {before[path].old}, is not put back")
        settings.append(Setting(path, before[path].old if now == before[path].set else now or "", restore=True))
    return tuple(settings), tuple(notes)


def put(tree: Tree, settings: tuple[Setting, ...]) -> None:
    """Write them; the record of old values is on the disk before the first is changed. Raises OSError."""
    record = dict(kept(tree))
    for setting in settings:
        if not setting.restore:
            old = record[setting.path].old if setting.path in record else live(tree, setting.path) or ""
            record[setting.path] = Kept(old, setting.value)
    if settings:
        _write(tree, record)
    for setting in settings:
        if live(tree, setting.path) not in (setting.value, None):
            _set(tree.at(setting.path), setting.value)
        if setting.restore:
            del record[setting.path]
    if any(setting.restore for setting in settings):
        _write(tree, record)


def _write(tree: Tree, record: Mapping[str, Kept]) -> None:
    disk.make_folders(tree.values.parent)
    if not record:
        disk.remove(tree.values)
        return
    value = {path: {"old": entry.old, "set": entry.set} for path, entry in sorted(record.items())}
    disk.replace(tree.values, (json.dumps(value, indent=1) + "\n").encode(), 0o600)


def _set(path: Path, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
