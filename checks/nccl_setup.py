"""What NCCL finds when it starts: room in /dev/shm, and conf files beside the environment."""

from __future__ import annotations

from collections.abc import Iterable

from nearsocket.model.check import check
from nearsocket.model.exitcode import severity
from nearsocket.model.finding import Evidence, Finding, Status, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.snapshot import MISSING, SourceStatus
from nearsocket.model.text import brief
from nearsocket.model.verdicts.conf import applicable, clashes, file_clashes, files, missing_file
from nearsocket.model.verdicts.groupfacts import GroupFacts, every_group
from nearsocket.model.verdicts.groups import Group, groups
from nearsocket.model.verdicts.remedies import enlarge_shm
from nearsocket.model.verdicts.shm_size import judge_room


@check("nccl.shm-size")
def shm_size(host: Host) -> Iterable[Finding]:
    """The ranks' /dev/shm has room for NCCL's files.

    **Judged**: size and free bytes of the /dev/shm that each rank sees, against what one communicator takes: channels x 2 x
    ranks ring buffers of 9.2 MiB (by NCCL_BUFFSIZE and the channel limits, where set) and a proxy pool of 33 MiB a rank.

    **Why**: Docker's default of 64 MiB holds six ring buffers. NCCL then fails at the start with "No space left on device".

    - **pass**: there is room; or the files are mapped and there is room for more.
    - **warn**: smaller than the estimate while files fit or cuMem may do without them; or full.
    - **fail**: too small, or filled by other files, with cuMem off and no file made yet.
    - **unknown**: the size could not be read.
    - **not-applicable**: nothing runs, cuMem is in force, or no buffers in host memory are needed.

    **Remedy**: `--shm-size`, or a remount.

    **Source**: statvfs of /proc/PID/root/dev/shm; NCCL src/transport/shm.cc, src/proxy.cc.
    """
    idle, running = every_group(host)
    return [idle] if idle else list(map(_shm_size, running))


def _shm_size(facts: GroupFacts) -> Finding:
    host, group, told = facts.host, facts.group, facts.in_force
    if facts.free is not None:
        return facts.free
    if told is not None and told.status is Status.PASS:
        return not_applicable(group.subject, f"cuMem is {told.summary}", told.evidence)
    rooms = [judge_room(host, group, process) for process in group.ranks]
    if not rooms:
        return unknown(group.subject, "no process of it is known to hold a GPU yet, so there is no rank to judge")
    room = max(rooms, key=lambda found: severity(found.status))
    if room.status is Status.PASS:
        return passed(group.subject, room.text, room.evidence)
    if room.status is Status.UNKNOWN:
        return unknown(group.subject, room.text, room.evidence, f"df -B1 /proc/{room.process.pid}/root/dev/shm")
    make = failed if room.status is Status.FAIL else warned
    return make(group.subject, room.text, room.evidence, enlarge_shm(group, room.process.pid))


@check("nccl.conf-conflict")
def conf_conflict(host: Host) -> Iterable[Finding]:
    """NCCL's conf files and the environment say the same, and no file is relied on for what it cannot do.

    **Judged**: /etc/nccl.conf, ~/.nccl.conf and the file that NCCL_CONF_FILE names, a container's own for what runs in it,
    against the engine's environment. The environment wins, then NCCL_CONF_FILE or else ~/.nccl.conf, then /etc/nccl.conf.

    **Why**: a forgotten file sets variables for every engine on the host, and NCCL's log words them as "set by environment".
    /etc/nccl.conf cannot pin NCCL_CUMEM_ENABLE for SGLang, which sets the variable first; a container sees no file of the host.

    - **pass**: files are there and agree with the environment and each other.
    - **warn**: a value loses against another one, turns cuMem off, or cannot take effect.
    - **fail**: a file's NCCL_CUMEM_HOST_ENABLE=0 undoes the environment's NCCL_CUMEM_ENABLE=1.
    - **unknown**: the files, one that the engine reads, or the one that NCCL_CONF_FILE names, could not be read.
    - **not-applicable**: there is no conf file.

    **Remedy**: keep a variable in one place: the unit's or the container's environment.

    **Source**: NCCL src/misc/param.cc.
    """
    source, running = host.source("nccl.conf"), groups(host)
    gone = [(group, lost) for group in running for lost in [missing_file(host, group)] if lost is not None]
    unread = [unknown(group.subject, lost.text, (lost,), "cat the file in the engine's file system") for group, lost in gone]
    if not source.ok and (source.status is not SourceStatus.ABSENT or source is MISSING):
        why = f"the conf files could not be read ({source.status.value}: {brief(source.reason or 'no reason given')})"
        return [unknown(host.name, why, (Evidence("nccl.conf", why),), "sudo cat /etc/nccl.conf")]
    if not files(host) and not any(clashes(host, group) for group in running):
        return unread or [not_applicable(host.name, "no NCCL conf file", (Evidence("nccl.conf", "no file that sets a variable"),))]
    found = [_conf(host, group) for group in running if group not in [lost for lost, _ in gone]]
    return [*unread, *found] or [_files_alone(host)]


def _conf(host: Host, group: Group) -> Finding:
    found, seen = clashes(host, group), applicable(host, group)
    evidence = [file.evidence for file in files(host) if file.pid is None or file in seen]
    evidence = evidence or [Evidence("nccl.conf", "no file of the host or of this container sets a variable")]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        make = failed if found[0].status is Status.FAIL else warned
        remedy = "grep -n . /etc/nccl.conf ~/.nccl.conf  # keep the variable in one place: the unit's or container's environment"
        return make(group.subject, found[0].text + more, evidence, remedy)
    what = (
        f"reads {', '.join(brief(file.path) for file in seen)} without conflict"
        if seen
        else "its NCCL reads none of the conf files"
    )
    return passed(group.subject, what, evidence)


def _files_alone(host: Host) -> Finding:
    """Nothing runs: the files are judged against each other."""
    found, evidence = file_clashes(files(host)), [file.evidence for file in files(host)]
    if found:
        return warned(host.name, found[0].text, evidence, "grep -n . /etc/nccl.conf ~/.nccl.conf  # keep the variable in one place")
    return passed(host.name, f"{len(evidence)} conf file(s), no conflict among them", evidence)
