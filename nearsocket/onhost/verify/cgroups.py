"""The processes of a replica by its control groups: its slice, where runtimes start the container, and its unit's own.

No name or title is asked: an engine gives itself any it likes. The kernel's list cannot be changed from inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

#: cgroup v2 alone; beside v1 (hybrid); v1 with systemd's own hierarchy.
_ROOTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd")
#: A container may make control groups of its own.
_MOST_GROUPS = 1024


def folders(root: Path, slice_name: str, unit: str) -> list[Path]:
    """The control groups' folders that are there, the slice's first."""
    parts = slice_name[: -len(".slice")].split("-") if slice_name.endswith(".slice") else []
    nested = "/".join("-".join(parts[: count + 1]) + ".slice" for count in range(len(parts)))
    # Docker's cgroupfs driver takes the parent's name as a path of its own.
    paths = [path for path in dict.fromkeys((nested, slice_name, f"system.slice/{unit}")) if path]
    return [folder for base in _ROOTS for folder in ((root / base / path) for path in paths) if folder.is_dir()]


def pids(root: Path, slice_name: str, unit: str) -> Optional[list[int]]:
    """The replica's processes, ascending; None where it has no control group here (it does not run)."""
    found = folders(root, slice_name, unit)
    if not found:
        return None
    return sorted({pid for folder in found for pid in _pids(folder)})


def _pids(folder: Path) -> Iterator[int]:
    for count, (path, _, files) in enumerate(os.walk(folder)):
        if count >= _MOST_GROUPS:
            return
        if "cgroup.procs" not in files:
            continue
        try:
            with open(os.path.join(path, "cgroup.procs"), "rb") as stream:  # noqa: PTH118, PTH123 - the watch's budget
                yield from (int(line) for line in stream.read().split() if line.isdigit() and line != b"0")
        except OSError:
            continue  # the group went away, or it is a threaded one, whose processes its parent lists
