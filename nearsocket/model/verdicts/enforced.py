"""Whether a group's buffers are near by force or by luck, and which files it has."""

from __future__ import annotations

import dataclasses
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model import near as nearness
from nearsocket.model.finding import Finding, Status, passed, unknown
from nearsocket.model.host import Buffer, Host, Process
from nearsocket.model.verdicts.binding import RankVerdict, near_by_force, near_of, near_of_buffer, shm_reach
from nearsocket.model.verdicts.cumem import judge_log, log_placement
from nearsocket.model.verdicts.groups import Group, one_line, who
from nearsocket.model.verdicts.placement import FilePlacement, judge_file, payload_buffers
from nearsocket.model.verdicts.transport import GroupLog

_HELD_BY = {"policy": "its memory policy", "cpuset": "its cpuset", "mount": "its bound /dev/shm mount"}


def group_buffers(host: Host, group: Group) -> tuple[Buffer, ...]:
    """The group's files that carry what GPUs exchange, each once, merged over its processes; names made printable."""
    pids = {process.pid for process in group.processes}
    merged = {buffer.identity: buffer for buffer in host.buffers if pids.intersection(buffer.pids)}
    for process in group.processes:
        for buffer in process.buffers:
            merged.setdefault(buffer.identity, buffer)
    return tuple(dataclasses.replace(buffer, file=one_line(buffer.file)) for buffer in payload_buffers(merged.values()))


def judged_files(host: Host, group: Group) -> tuple[FilePlacement, ...]:
    """Each payload file against the near nodes of the processes that map it: in a group over two sockets both sides count."""
    return tuple(judge_file(buffer, near_of_buffer(host, buffer)) for buffer in group_buffers(host, group))


def unreadable(group: Group) -> Optional[str]:
    """Why some rank's buffers could not be read; None where all were."""
    for process in group.ranks:
        if process.buffers_reason and not process.buffers:
            return f"{who(process)}: {one_line(process.buffers_reason)}"
    return None


def judge_force(host: Host, process: Process) -> RankVerdict:
    """Judge whether a new /dev/shm file of this rank can only land near: pass by force, warn by luck, fail bound away."""
    near, reach, name = near_of(host, process), shm_reach(host, process), who(process)
    if near is None:
        return RankVerdict(process, Status.UNKNOWN, f"{name}: the node of its GPU is not known")
    if reach is None:
        return RankVerdict(process, Status.UNKNOWN, f"{name}: its memory policy could not be read")
    nodes, at = f"node {cpulist.render(reach.nodes)}", f"node {cpulist.render(near)}"
    holder = near_by_force(host, process)
    if holder == "socket":
        return RankVerdict(process, Status.PASS, f"{name} has {nodes} alone, the only socket")
    if holder is not None:
        return RankVerdict(process, Status.PASS, f"{name} is held at {nodes} by {_HELD_BY[holder]}")
    if not reach.nodes & near:
        return RankVerdict(process, Status.FAIL, f"{name} is held at {nodes}, away from its GPU at {at}")
    mount = process.shm_mount.policy if process.shm_mount and process.shm_mount.policy else None
    policy = f"mount mpol={one_line(mount, 40)}" if mount else f"policy {one_line(process.policy or 'default', 40)}"
    return RankVerdict(process, Status.WARN, f"{name} may place buffers on {nodes} ({policy}), its GPU is at {at}")


def proven_cumem(host: Host, group: Group, found: Optional[GroupLog]) -> Optional[Finding]:
    """The log's verdict on where cuMem's buffers lie, each rank's log against its own GPUs; None where no log has a node line."""
    if found is None or not found.log.numa:
        return None
    findings = []
    for part in found.parts:
        if part.log.numa:
            several = len(part.log.ranks) > 1
            near = _group_near(host, group) if several else near_of(host, part.process)
            findings.append(log_placement(part.log, near, group.subject, part.source))
    worst = min(findings, key=lambda finding: _ORDER.index(finding.status))
    if worst.status is Status.PASS and not found.complete:
        return unknown(group.subject, f"{worst.summary}; but not every rank's log was found", worst.evidence, worst.remedy)
    if worst.status is Status.PASS:
        return passed(group.subject, worst.summary, [line for finding in findings for line in finding.evidence])
    return worst


def cumem_in_force(group: Group, found: Optional[GroupLog]) -> Optional[Finding]:
    """`nccl.cumem-in-force` from the group's logs; None where there is no log. Not every rank's log is no pass."""
    if found is None:
        return None
    finding = judge_log(found.log, group.subject, found.source)
    if finding.status in (Status.PASS, Status.NOT_APPLICABLE) and not found.complete:
        return unknown(group.subject, f"{finding.summary}; but not every rank's log was found", finding.evidence)
    return finding


def _group_near(host: Host, group: Group) -> Optional[frozenset[int]]:
    return nearness.of_gpus(host, group.rank_gpus)


_ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.NOT_APPLICABLE)
