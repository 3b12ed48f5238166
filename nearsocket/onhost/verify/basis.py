"""What a verdict rests on, in a form that is cheap to look at again: while nothing of it changed, the verdict holds.

NCCL pins its buffers, and pinned pages do not move; a process's number and start tick name it for good. So a second look needs
no judgement: the same processes, bound as they were, with the same mappings on the same nodes, and logs that have not grown. A
page in so many is asked for its node, which costs the same however large the engine is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from nearsocket.model.parsers import policy
from nearsocket.onhost.collect import buffers
from nearsocket.onhost.verify import devices

_SAMPLES = 16
_MOST_NAMES = 20_000
_PROC = Path("/proc")
#: What a process that matters maps.
_SIGNS = (buffers.MARK, b"/dev/nvidia")
_STATUS = ("Cpus_allowed_list", "Mems_allowed_list", "CapEff")


def take(pids: Iterable[int], others: Sequence[int], log: str) -> dict[str, Any]:
    """The basis as it is now, JSON's own values. `pids`: the processes that the verdict is about; `others`: the replica's other
    ones; `log`: the start's folder. A process that ended is left out."""
    found = {str(pid): entry for pid in sorted(pids) for entry in (_process(pid),) if entry is not None}
    beside = {str(pid): entry for pid in sorted(others) for entry in (_other(pid),) if entry is not None}
    return {"processes": found, "others": beside, "log": logs_state(log), "devices": _rules(found)}


def same(basis: Mapping[str, Any], pids: Sequence[int], log: str) -> Optional[str]:
    """None where nothing changed, else what did, in a few words. `pids`: the replica's processes now."""
    try:
        known, others = basis["processes"], basis["others"]
        if not known:
            return "no process was known"
        for pid in pids:
            if str(pid) not in known:
                fresh = _came(pid, others.get(str(pid)))
                if fresh:
                    return fresh
        if basis["log"] != logs_state(log):
            return "NCCL's log grew"
        if basis["devices"] != _rules(known):
            return "the device rules of its container were written anew"
        for name in known:
            changed = _changed(int(name), known[name])
            if changed:
                return changed
    except (KeyError, TypeError, ValueError, AttributeError):
        return "the last verdict's basis cannot be read"
    return None


def logs_state(folder: str) -> list[int]:
    """Names, bytes and newest change (ns) of what lies there: equal states have equal logs. Zeros where it cannot be read."""
    count = size = newest = 0
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return [0, 0, 0]
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                count += 1
                if count > _MOST_NAMES:
                    break
                if count <= 256:  # beyond that the number of names tells a change
                    found = entry.stat(follow_symlinks=False)
                    size, newest = size + found.st_size, max(newest, found.st_ctime_ns)
    except OSError:
        pass  # it changes while it is looked at
    finally:
        os.close(fd)
    return [count, size, newest]


def _process(pid: int) -> Optional[dict[str, Any]]:
    try:
        there = _ranges(pid)
        nodes: dict[str, set[int]] = {}
        for one in there[: buffers.MOST_RANGES]:
            nodes.setdefault(_name(one), set()).update(buffers.by_move_pages(pid, one).pages)
        shown = {name: sorted(where) for name, where in sorted(nodes.items())}
        return {**_state(pid), "ranges": _listed(there), "nodes": shown}
    except OSError:
        return None  # it ended, or may not be looked at: the next look then finds a change


def _changed(pid: int, was: Mapping[str, Any]) -> Optional[str]:
    try:
        now = _state(pid)
        if now["ticks"] != was["ticks"]:
            return f"process {pid} is another one"
        for key, value in now.items():
            if value != was[key]:
                return f"process {pid}: {key} is {value}, was {was[key]}"
        ranges = _ranges(pid)
        if _listed(ranges) != was["ranges"]:
            return f"process {pid} has other nccl- files"
        for one in ranges[: buffers.MOST_RANGES]:
            if not buffers.sampled_nodes(pid, one, _SAMPLES) <= set(was["nodes"][_name(one)]):
                return f"process {pid}: pages of {one.file} are elsewhere"
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ESRCH)
        return f"process {pid} ended" if gone else f"process {pid} could not be read: {error.strerror}"
    return None


def _rules(known: Iterable[str]) -> list[object]:
    """The device rules of the first process that runs: those of one container are the same for all."""
    return next((found for found in (devices.rules(int(name)) for name in sorted(known)) if found), [])


def _ranges(pid: int) -> list[buffers.Range]:
    return buffers.ranges(buffers.lines(_PROC / str(pid) / "maps"))


def _listed(ranges: Iterable[buffers.Range]) -> list[list[object]]:
    return sorted([one.device, one.inode, one.offset, one.end - one.start] for one in ranges)


def _name(one: buffers.Range) -> str:
    return f"{one.device}:{one.inode}"


def _other(pid: int) -> Optional[list[object]]:
    """A process that the verdict is not about: its start tick, and which signs of one that matters it has all the same."""
    try:
        return [_ticks(pid), [buffers.maps_any(pid, (sign,)) for sign in _SIGNS]]
    except OSError:
        return None


def _came(pid: int, was: Optional[Sequence[Any]]) -> Optional[str]:
    """What makes a process matter that did not, or was not there; None for one that ended or needs no judgement."""
    now = _other(pid)
    if now is None:
        return None
    ticks, signs = now
    if was is None or was[0] != ticks:
        return f"process {pid} is new" if any(signs) else None  # type: ignore[arg-type]
    return f"process {pid} came to have an nccl- file or a GPU" if signs != was[1] else None


def _ticks(pid: int) -> int:
    """The process's start tick: with its number it names it for good. Raises OSError, also where it ended."""
    fields = b"".join(buffers.chunks(_PROC / str(pid) / "stat")).rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        raise ProcessLookupError(errno.ESRCH, "the process ended")
    return int(fields[19])


def _state(pid: int) -> dict[str, Any]:
    """What identifies the process, and what the kernel enforces on it. Raises OSError."""
    folder = _PROC / str(pid)
    ticks = _ticks(pid)
    status = b"".join(buffers.chunks(folder / "status")).decode("ascii", "replace")
    told = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith(_STATUS) and ":\t" in line)
    line = buffers.first_line(folder / "numa_maps")
    return {"ticks": ticks, "policy": policy.policy(line) if line else None, **told}
