"""Whether a group's ranks exchange data through host memory at all, and what NCCL's own log says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Evidence
from nearsocket.model.host import Host, Process
from nearsocket.model.parsers import nccl_log
from nearsocket.model.parsers.nccl_log import NcclLog
from nearsocket.model.verdicts.cumem import direct_only
from nearsocket.model.verdicts.engine_env import lookup
from nearsocket.model.verdicts.groups import Group, holds_gpu, one_line


@dataclass(frozen=True)
class RankLog:
    """The log that one process holds open; `source` prefixes line numbers in evidence."""

    process: Process
    text: str
    source: str
    log: NcclLog


@dataclass(frozen=True)
class GroupLog:
    """The logs of a group as one. `complete` tells whether every rank's words are in it."""

    log: NcclLog
    source: str
    parts: tuple[RankLog, ...]
    complete: bool


def group_log(host: Host, group: Group) -> Optional[GroupLog]:
    """What NCCL wrote for this group's processes; None where no log was found."""
    parts = []
    for process in group.processes:
        text = process.nccl_log
        if text and nccl_log.looks_like(text):
            parts.append(RankLog(process, text, f"{_path(host, process)} line", nccl_log.parse(text)))
    if not parts:
        return None
    # Ranks that write into one file each show all of it: once is enough.
    texts = list(dict.fromkeys(part.text for part in parts))
    whole = nccl_log.parse("\n".join(texts) + "\n")
    heard = {part.process.pid for part in parts}
    complete = all(rank.pid in heard for rank in group.ranks) or len(whole.ranks) >= len(group.ranks) > 0
    source = parts[0].source if len(texts) == 1 else f"NCCL logs of pids {', '.join(map(str, sorted(heard)))}, line"
    return GroupLog(whole, source, tuple(parts), complete)


def _path(host: Host, process: Process) -> str:
    """The path of the process's log as the snapshot names it (by its pid or its container's), else a phrase."""
    entries = host.source("nccl.logs").data
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("pid") in (process.pid, *process.nspid) and isinstance(entry.get("path"), str):
            return one_line(entry["path"])
    return f"NCCL log of pid {process.pid}"


def logged_value(found: Optional[GroupLog], name: str) -> Optional[Evidence]:
    """NCCL's own line on a variable, with the value as the text after the last `=`; None where no log has one."""
    values = found.log.values(name) if found else ()
    if not values or found is None:
        return None
    # A rank that differs decides: 0 in one rank is enough to make files.
    value = min(values, key=lambda entry: entry.value)
    return Evidence(f"{found.source} {value.line.number}", f"{name} set by environment: {name}={one_line(value.value, 40)}")


def nvlink_only(host: Host, group: Group) -> Optional[Evidence]:
    """Evidence that every pair of the group's GPUs has NVLink and that P2P is not switched off; None otherwise."""
    if lookup(group, "NCCL_P2P_DISABLE").value not in (None, "0"):
        return None
    gpus = [host.gpu(pci) for pci in group.rank_gpus]
    words = {}
    for index, gpu in enumerate(gpus):
        for other in gpus[index + 1 :]:
            if gpu is None or other is None:
                return None
            words[f"{gpu.pci} {other.pci}"] = gpu.links.get(other.pci) or other.links.get(gpu.pci, "")
    if not words or not all(word.startswith("NV") for word in words.values()):
        return None
    return Evidence("nvml", "NVLink between all of its GPUs: " + ", ".join(f"{pair} {word}" for pair, word in words.items()))


def one_rank(host: Host, group: Group) -> Optional[Evidence]:
    """Evidence that the group is one rank on one GPU, without an nccl- file; None otherwise.

    A process beside it of the same parent or container that holds a GPU too may be the second rank, however it is named.
    """
    if len(group.ranks) != 1 or group.ranks[0].buffers or len(group.rank_gpus) != 1 or group.ranks[0].rank not in (None, 0):
        return None
    rank = group.ranks[0]
    for other in host.processes:
        beside = other.ppid == rank.ppid or (other.container is not None and other.container == rank.container)
        if other.pid != rank.pid and beside and holds_gpu(host, other):
            return None
    alone = f"one rank on GPU {one_line(rank.gpus[0], 20)}, no nccl- file: no second GPU to exchange with"
    return Evidence(f"/proc/{rank.pid}", alone)


def only_gpu(host: Host, group: Group) -> Optional[Evidence]:
    """Evidence that one process holds the host's only GPU, so that there is no other rank on this host; None otherwise."""
    holders = [process for process in host.processes if holds_gpu(host, process)]
    return one_rank(host, group) if len(host.gpus) == 1 and host.source("pci").ok and len(holders) == 1 else None


def needs_no_host_buffers(host: Host, group: Group, found: Optional[GroupLog]) -> Optional[Evidence]:
    """Evidence that the group's GPUs exchange nothing through host memory: one rank, P2P in the log, NVLink everywhere."""
    alone = one_rank(host, group)
    if alone is not None:
        return alone
    if found is not None:
        if not (found.complete and direct_only(found.log)):
            return None
        first = found.log.transports[0]
        return Evidence(
            f"{found.source} {first.line.number}", f"every transport is P2P or NVLink: {one_line(first.line.text.strip())}"
        )
    return nvlink_only(host, group)
