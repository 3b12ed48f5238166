"""Whether a group's buffers are near by force or by luck, and which files it has."""

from __future__ import annotations

from typing import Optional

from nearsocket.model import cpulist, near
from nearsocket.model.exitcode import severity
from nearsocket.model.finding import Finding, Status, passed, unknown
from nearsocket.model.host import Host, Process
from nearsocket.model.text import brief
from nearsocket.model.verdicts.binding import RankVerdict, near_by_force, shm_reach
from nearsocket.model.verdicts.cumem import judge_log, log_placement
from nearsocket.model.verdicts.groups import Group, who
from nearsocket.model.verdicts.placement import FilePlacement, judge_file
from nearsocket.model.verdicts.ranklogs import GroupLog, RankLog
from nearsocket.model.verdicts.transport import group_buffers

INCOMPLETE = "not every rank's log was found whole"
_HELD_BY = {"policy": "its memory policy", "cpuset": "its cpuset", "mount": "its bound /dev/shm mount"}


def judged_files(host: Host, group: Group) -> tuple[FilePlacement, ...]:
    """Each payload file against the near nodes of the processes that map it: in a group over two sockets both sides count."""
    return tuple(judge_file(buffer, near.of_buffer(host, buffer)) for buffer in group_buffers(host, group))


def judge_force(host: Host, process: Process) -> RankVerdict:
    """Judge whether a new /dev/shm file of this rank can only land near: pass by force, warn by luck, fail bound away."""
    home, reach, name = near.of_process(host, process), shm_reach(host, process), who(process)
    if home is None:
        return RankVerdict(process, Status.UNKNOWN, f"{name}: the node of its GPU is not known")
    if reach is None:
        return RankVerdict(process, Status.UNKNOWN, f"{name}: its memory policy could not be read")
    nodes, at = f"node {cpulist.render(reach.nodes)}", f"node {cpulist.render(home)}"
    holder = near_by_force(host, process)
    if holder == "socket":
        return RankVerdict(process, Status.PASS, f"{name} has {nodes} alone, the only socket with memory")
    if holder is not None:
        return RankVerdict(process, Status.PASS, f"{name} is held at {nodes} by {_HELD_BY[holder]}")
    if not reach.nodes & home:
        return RankVerdict(process, Status.FAIL, f"{name} is held at {nodes}, away from its GPU at {at}")
    mount = process.shm_mount.policy if process.shm_mount and process.shm_mount.policy else None
    policy = f"mount mpol={brief(mount, 40)}" if mount else f"policy {brief(process.policy or 'default', 40)}"
    return RankVerdict(process, Status.WARN, f"{name} may place buffers on {nodes} ({policy}), its GPU is at {at}")


def proven_cumem(host: Host, group: Group, found: Optional[GroupLog]) -> Optional[Finding]:
    """The log's verdict on where cuMem's buffers lie, each process's lines against its own GPU; None where no line names a node."""
    if found is None or not found.log.numa:
        return None
    findings = [
        log_placement(part.log, _near_of(host, group, part), group.subject, found.source) for part in found.parts if part.log.numa
    ]
    worst = max(findings, key=lambda finding: severity(finding.status))
    if worst.status is Status.PASS and not found.complete:
        return unknown(group.subject, f"{worst.summary}; but {INCOMPLETE}", worst.evidence, worst.remedy)
    if worst.status is Status.PASS:
        lines = [line for finding in findings for line in finding.evidence]
        nodes = cpulist.render(line.node for line in found.log.numa if line.node >= 0)
        return passed(group.subject, f"near: {len(found.log.numa)} cuMem host buffers, all on node {nodes}", lines)
    return worst


def _near_of(host: Host, group: Group, part: RankLog) -> Optional[frozenset[int]]:
    """The near nodes of the process that wrote; for lines that do not say who did, those that all ranks share."""
    if part.process is not None:
        return near.of_process(host, part.process)
    places = {near.of_process(host, process) for process in group.ranks}
    return next(iter(places)) if len(places) == 1 else None


def cumem_in_force(group: Group, found: Optional[GroupLog]) -> Optional[Finding]:
    """`nccl.cumem-in-force` from the group's logs; None where there is no log. Not every rank's log is no pass."""
    if found is None:
        return None
    finding = judge_log(found.log, group.subject, found.source)
    if finding.status in (Status.PASS, Status.NOT_APPLICABLE) and not found.complete:
        return unknown(group.subject, f"{finding.summary}; but {INCOMPLETE}", finding.evidence)
    return finding
