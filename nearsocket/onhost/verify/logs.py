"""NCCL's logs of one start, from a folder that the container may write to: so nothing in it is believed but its text.

Links are not followed, what is no regular file is passed over, a read never blocks, and names, files and bytes have limits. A
log counts for the one process of the replica whose number inside the container it has in its name (NSpid); its text may say what
it likes about others (verdicts/ranklogs.py). Where a limit was reached the logs say so, and nobody takes them for whole.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nearsocket.model.text import one_line
from nearsocket.onhost.collect import ncclfiles

#: NCCL writes one file a process; a folder with more names than this was filled by somebody.
MOST_NAMES = 20_000
_TOTAL_CAP = 4 << 20
_NAME = re.compile(r"nccl\.(?P<host>[^/]{1,255})\.(?P<pid>[1-9][0-9]{0,9})\Z")


def read(folder: Path, processes: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Entries as of the source `nccl.logs`, and notes. `processes`: entries of the source `processes`. Raises OSError."""
    owners = _owners(processes)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        names, notes = _names(fd, owners)
        entries: list[dict[str, Any]] = []
        left = _TOTAL_CAP
        for name in names:
            entry = _entry(fd, name, folder, owners[int(name.rpartition(".")[2])], left, notes)
            if entry is not None:
                left -= len(entry["text"])
                entries.append(entry)
        return entries, tuple(notes)
    finally:
        os.close(fd)


def _owners(processes: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Process number as NCCL knows it (the innermost namespace's) to the host's; one that two processes have is left out."""
    found: dict[int, set[int]] = {}
    for process in processes:
        numbers = process.get("nspid") or [process["pid"]]
        found.setdefault(numbers[-1], set()).add(process["pid"])
    return {number: next(iter(pids)) for number, pids in found.items() if len(pids) == 1}


def _names(fd: int, owners: Mapping[int, int]) -> tuple[list[str], list[str]]:
    """The names that belong to one of the replica's processes, one a process, and notes."""
    chosen: dict[int, str] = {}
    notes: list[str] = []
    with os.scandir(fd) as entries:
        for count, entry in enumerate(entries):
            if count >= MOST_NAMES:
                notes.append(f"NCCL's log folder has more than {MOST_NAMES} names; the rest was not looked at")
                break
            match = _NAME.match(entry.name)
            if match is None or int(match["pid"]) not in owners:
                continue
            pid = int(match["pid"])
            if pid in chosen:
                notes.append(f"two logs have the number {pid}, so that neither is believed: {one_line(entry.name, 60)}")
                chosen[pid] = ""
            chosen.setdefault(pid, entry.name)
    return sorted(name for name in chosen.values() if name), notes


def _entry(fd: int, name: str, folder: Path, pid: int, left: int, notes: list[str]) -> Any:
    try:
        log = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=fd)
    except OSError as error:
        notes.append(f"NCCL's log {one_line(name, 60)} was not read: {error.strerror}")
        return None
    try:
        if not stat.S_ISREG(os.fstat(log).st_mode):
            notes.append(f"NCCL's log {one_line(name, 60)} is no regular file, and was not read")
            return None
        entry = ncclfiles.read(log, str(folder / name))
    except OSError as error:
        notes.append(f"NCCL's log {one_line(name, 60)} was not read: {error.strerror}")
        return None
    finally:
        os.close(log)
    if entry is None:
        return None
    del entry["identity"]
    return {"pid": pid, **entry, "text": ncclfiles.cut(entry["text"], left)}
