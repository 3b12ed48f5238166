"""Whether a group's ranks exchange data through host memory at all, and what NCCL's own log says about it."""

from __future__ import annotations

import dataclasses
from typing import Optional

from nearsocket.model.finding import Evidence
from nearsocket.model.host import Buffer, Host
from nearsocket.model.text import brief
from nearsocket.model.verdicts.conf import applicable
from nearsocket.model.verdicts.cumem import direct_only
from nearsocket.model.verdicts.engine_env import lookup
from nearsocket.model.verdicts.groups import Group, holds_gpu, who
from nearsocket.model.verdicts.placement import payload_buffers
from nearsocket.model.verdicts.ranklogs import GroupLog


def logged_value(found: Optional[GroupLog], name: str) -> Optional[Evidence]:
    """NCCL's own line on a variable, with the value as the text after the last `=`; None where no log has one."""
    values = found.log.values(name) if found else ()
    if not values or found is None:
        return None
    # A rank that differs decides: 0 in one rank is enough to make files.
    value = min(values, key=lambda entry: entry.value)
    return Evidence(f"{found.source} {value.line.number}", f"{name} set by environment: {name}={brief(value.value, 40)}")


def group_buffers(host: Host, group: Group) -> tuple[Buffer, ...]:
    """The group's files that carry what GPUs exchange, each once, merged over its processes; names made printable."""
    pids = {process.pid for process in group.processes}
    merged = {buffer.identity: buffer for buffer in host.buffers if pids.intersection(buffer.pids)}
    for process in group.processes:
        for buffer in process.buffers:
            merged.setdefault(buffer.identity, buffer)
    return tuple(dataclasses.replace(buffer, file=brief(buffer.file)) for buffer in payload_buffers(merged.values()))


def unreadable(group: Group) -> Optional[str]:
    """Why some rank's buffers could not be read; None where all were."""
    for process in group.ranks:
        if process.buffers_reason and not process.buffers:
            return f"{who(process)}: {brief(process.buffers_reason)}"
    return None


def needs_no_host_buffers(host: Host, group: Group, found: Optional[GroupLog]) -> Optional[Evidence]:
    """Evidence that the group's GPUs exchange nothing through host memory: P2P in the log, one rank, or NVLink everywhere.

    A ring file that is mapped contradicts it, and so do ranks whose files could not be read, unless the log says it.
    """
    if group_buffers(host, group):
        return None
    if found is not None and found.complete and direct_only(found.log):
        first = found.log.transports[0]
        return Evidence(
            f"{found.source} {first.line.number}", f"every transport is P2P or NVLink: {brief(first.line.text.strip())}"
        )
    if unreadable(group) is not None or (found is not None and _speaks(found)):
        return None
    return _one_rank(host, group) or _nvlink_only(host, group)


def _speaks(found: GroupLog) -> bool:
    """Whether the log tells of transports or host buffers, which then decide."""
    log = found.log
    return bool(log.transports or log.mmap or log.imported or log.cumem or log.numa)


def _nvlink_only(host: Host, group: Group) -> Optional[Evidence]:
    """Evidence that every pair of the group's GPUs has NVLink and that P2P is known not to be switched off; None otherwise."""
    if not _p2p_allowed(host, group):
        return None
    gpus = [host.gpu(pci) for pci in group.rank_gpus]
    words = {}
    for index, gpu in enumerate(gpus):
        for other in gpus[index + 1 :]:
            if gpu is None or other is None or {gpu.p2p.get(other.pci, "ok"), other.p2p.get(gpu.pci, "ok")} != {"ok"}:
                return None
            words[f"{gpu.pci} {other.pci}"] = gpu.links.get(other.pci) or other.links.get(gpu.pci, "")
    if not words or not all(word.startswith("NV") for word in words.values()):
        return None
    return Evidence("nvml", "NVLink between all of its GPUs: " + ", ".join(f"{pair} {word}" for pair, word in words.items()))


def _p2p_allowed(host: Host, group: Group) -> bool:
    """Whether neither the environment, which has to be known, nor a conf file turns P2P off or down to nothing."""
    off, level = lookup(group, "NCCL_P2P_DISABLE"), lookup(group, "NCCL_P2P_LEVEL")
    if not (off.known and level.known):
        return False
    files = applicable(host, group)
    offs = [off.value, *(file.settings.get("NCCL_P2P_DISABLE") for file in files)]
    levels = [level.value, *(file.settings.get("NCCL_P2P_LEVEL") for file in files)]
    return all(value in (None, "0") for value in offs) and not any(value in ("0", "LOC") for value in levels)


def _one_rank(host: Host, group: Group) -> Optional[Evidence]:
    """Evidence that the group is one rank on one GPU, without an nccl- file; None otherwise.

    A process beside it of the same parent or container that holds a GPU too may be the second rank, however it is named.
    """
    if len(group.ranks) != 1 or group.ranks[0].buffers or len(group.rank_gpus) != 1 or group.ranks[0].rank not in (None, 0):
        return None
    rank = group.ranks[0]
    for other in host.processes:
        beside = (other.ppid == rank.ppid and rank.ppid > 1) or (other.container is not None and other.container == rank.container)
        if other.pid != rank.pid and beside and holds_gpu(host, other):
            return None
    alone = f"one rank on GPU {brief(rank.gpus[0], 20)}, no nccl- file: no second GPU to exchange with"
    return Evidence(f"/proc/{rank.pid}", alone)
