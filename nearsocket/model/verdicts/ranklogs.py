"""Whose words NCCL's logs hold: each line given to the process of the group that wrote it.

A log can be appended to over many runs, shared by all ranks of a group and by neighbours, and cut when it was collected. A
process in several communicators has several rank numbers. So only the process number at the start of a line counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.host import Host, Process
from nearsocket.model.parsers import nccl_log
from nearsocket.model.parsers.nccl_log import LogLine, NcclLog
from nearsocket.model.parsers.nccl_ranks import process_of
from nearsocket.model.text import brief
from nearsocket.model.verdicts.groups import Group

#: How a text ends that was cut when it was collected (docs/snapshot.md).
CUT = "<cut>"
#: NCCL says this once in a process's life, at its start.
_START = "cudaDriverVersion "


@dataclass(frozen=True)
class RankLog:
    """What one process of the group wrote; `process` is None for lines that do not say who wrote them."""

    process: Optional[Process]
    log: NcclLog


@dataclass(frozen=True)
class GroupLog:
    """The group's words as one log, and by process. `complete` tells whether every rank's words are in it, whole.

    `source` prefixes line numbers in evidence.
    """

    log: NcclLog
    source: str
    parts: tuple[RankLog, ...]
    complete: bool


def group_log(host: Host, group: Group) -> Optional[GroupLog]:
    """What NCCL wrote for this group's processes in this run; None where no log has a line of theirs."""
    texts: dict[str, Process] = {}
    for process in group.processes:
        if process.nccl_log and nccl_log.looks_like(process.nccl_log):
            texts.setdefault(process.nccl_log, process)  # ranks that write into one file each show all of it: once is enough
    written: dict[Optional[int], list[LogLine]] = {}
    for offset, (text, holder) in zip(_offsets(tuple(texts)), texts.items()):
        for pid, line in _owned(text, holder, group):
            written.setdefault(pid, []).append(LogLine(line.number + offset, line.text))
    if not any(pid is not None for pid in written):
        return None
    by_pid = {process.pid: process for process in group.processes}
    parts = tuple(RankLog(by_pid[pid] if pid is not None else None, nccl_log.told_by(lines)) for pid, lines in written.items())
    whole = nccl_log.told_by(sorted((line for lines in written.values() for line in lines), key=lambda line: line.number))
    cut = any(line.rstrip().endswith(CUT) for text in texts for line in text.splitlines())
    complete = not cut and bool(group.ranks) and all(rank.pid in written for rank in group.ranks)
    heard = ", ".join(str(pid) for pid in sorted(pid for pid in written if pid is not None))
    one = next(iter(texts.values()))
    source = f"{_path(host, one)} line" if len(texts) == 1 else f"NCCL logs of pids {heard}, line"
    return GroupLog(whole, source, parts, complete)


def _offsets(texts: Sequence[str]) -> list[int]:
    """How many lines stand before each text when all are read one after the other."""
    found = [0]
    for text in texts:
        found.append(found[-1] + len(text.splitlines()))
    return found[:-1]


def _owned(text: str, holder: Process, group: Group) -> list[tuple[Optional[int], LogLine]]:
    """The lines of this group's run with the pid of the process that wrote each.

    Lines of other processes are left out: an earlier run's, or a neighbour's. Lines without a process number count where
    nothing foreign comes after them. Where a process number was used again (a container's restart), its last start counts.
    """
    owners = _owners(holder, group)
    kept: dict[Optional[int], list[LogLine]] = {}
    for line in nccl_log.messages(text):
        origin = process_of(line)
        owner = owners.get(int(origin.rpartition(":")[2])) if origin else None
        if (origin and owner is None) or _START in line.text:
            kept.pop(None, None)
        if owner is not None and _START in line.text:
            kept.pop(owner, None)
        if owner is not None or not origin:
            kept.setdefault(owner, []).append(line)
    return [(owner, line) for owner, lines in kept.items() for line in lines]


def _owners(holder: Process, group: Group) -> Mapping[int, int]:
    """Process number as a log writes it (the host's or a namespace's own) to the host's; numbers of two processes are left out.

    The process that holds the log comes first: its numbers are in the log's own namespace.
    """
    found: dict[int, set[int]] = {}
    for process in group.processes:
        for number in (process.pid, *process.nspid):
            found.setdefault(number, set()).add(process.pid)
    sure = {number: next(iter(pids)) for number, pids in found.items() if len(pids) == 1}
    return {**sure, **dict.fromkeys((holder.pid, *holder.nspid), holder.pid)}


def _path(host: Host, process: Process) -> str:
    """The path of the process's log as the snapshot names it (by its pid or its container's), else a phrase."""
    entries = host.source("nccl.logs").data
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("pid") in (process.pid, *process.nspid) and isinstance(entry.get("path"), str):
            return brief(entry["path"])
    return f"NCCL log of pid {process.pid}"
