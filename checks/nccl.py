"""Where NCCL's host buffers lie, and what keeps them there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from nearsocket.model.check import check
from nearsocket.model.finding import Evidence, Finding, Status, failed, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.verdicts.binding import worst
from nearsocket.model.verdicts.enforced import judge_force
from nearsocket.model.verdicts.groupfacts import GroupFacts, every_group
from nearsocket.model.verdicts.groups import AS_ROOT, hidden_processes
from nearsocket.model.verdicts.placement import NO_BUFFERS, placement_finding
from nearsocket.model.verdicts.remedies import ask_nccl, bind


@check("nccl.buffer-placement")
def buffer_placement(host: Host) -> Iterable[Finding]:
    """Every ring buffer that GPUs exchange data through lies on the GPUs' own socket.

    **Judged**: each `/dev/shm/nccl-*` file of ring size, merged over the processes that map it, against the nodes of those
    processes' GPUs; and cuMem's buffers by NCCL's log. Proxy pools and control files carry no GPU data and are not judged.
    In a group over two sockets a file may lie at either end of its link.

    **Why**: an all-reduce through a far buffer takes two to three times as long (48 MiB: 2.3 ms near, 5.7 ms far).

    - **pass**: every file has at least 99 % of its bytes accounted for, all near; or every `numa N` line of the log is near.
    - **warn**: a file has at most 1 % of its bytes far.
    - **fail**: a file is far, or split with more than 1 % far; or a `numa N` line is far.
    - **unknown**: a file is incomplete, the GPUs' nodes are not known, processes could not be read, or nothing is shown. The
      absence of nccl- lines proves nothing.
    - **not-applicable**: no process holds a GPU or an nccl- file, the log shows only P2P or NVLink, or no buffers in host
      memory are needed (one rank on one GPU, NVLink between all GPUs).

    **Remedy**: pinned pages cannot be moved; restart the engine bound, or with cuMem.

    **Source**: move_pages(2) or /proc/PID/numa_maps; NCCL src/transport/shm.cc and src/include/alloc.h.
    """
    idle, running = every_group(host)
    return [idle] if idle else [*map(_placement, running), *hidden_processes(host)]


def _placement(facts: GroupFacts) -> Finding:
    group, cumem, remedy = facts.group, facts.proven, bind(facts.host, facts.group)
    if facts.free is not None:
        return facts.free
    if facts.files:
        found = placement_finding(facts.subject, facts.files, None, facts.near, remedy)
        found = dataclasses.replace(found, evidence=(*found.evidence, *facts.where))
        if cumem is not None and cumem.status is Status.FAIL and found.status is not Status.FAIL:
            return cumem
        if facts.denied and found.status in (Status.PASS, Status.WARN):
            summary = f"{found.summary}; but the buffers of {facts.denied} could not be read"
            return unknown(facts.subject, summary, found.evidence, AS_ROOT)
        return found
    if cumem is not None:
        return dataclasses.replace(cumem, evidence=(*cumem.evidence, *facts.where))
    if facts.denied:
        return unknown(facts.subject, f"buffers not read: {facts.denied}", facts.where, AS_ROOT)
    read = Evidence("processes", f"pids {', '.join(str(p.pid) for p in group.processes)}: no ring buffer mapped")
    return unknown(facts.subject, NO_BUFFERS, (read, *facts.where), ask_nccl(group))


@check("nccl.placement-enforced")
def placement_enforced(host: Host) -> Iterable[Finding]:
    """Buffers are near by force, so that the next restart cannot put them elsewhere.

    **Judged**: for each rank, where a new /dev/shm file can land: the mount's policy, else the task's policy, within the
    cpuset, all as they are in force now. Or cuMem, proven by NCCL's log. A mapping's own policy column proves nothing.

    **Why**: an unbound engine draws again at every start; full page cache on the near node decides the draw.

    - **pass**: every rank is held near by a bound policy, a cpuset or a bound mount; or cuMem holds all buffers near.
    - **warn**: near or not, it is luck: `default`, `prefer`, `interleave` and CPU sets alone hold nothing. Or the binding is
      newer than buffers that lie far.
    - **fail**: a rank is held on far nodes.
    - **unknown**: the GPU's node or the policy could not be read.
    - **not-applicable**: nothing runs, the log shows only P2P or NVLink, or no buffers in host memory are needed.

    **Remedy**: a cpuset, a bound policy, a /dev/shm mounted with `mpol=bind:NODE`, or cuMem.

    **Source**: /proc/PID/status, first line of /proc/PID/numa_maps, mount options; Linux mm/shmem.c; run in the lab.
    """
    idle, running = every_group(host)
    return [idle] if idle else list(map(_enforced, running))


def _enforced(facts: GroupFacts) -> Finding:
    host, group, cumem, placed = facts.host, facts.group, facts.in_force, facts.proven
    if facts.free is not None:
        return facts.free
    if (
        not facts.files
        and cumem is not None
        and cumem.status is Status.PASS
        and placed is not None
        and placed.status is Status.PASS
    ):
        summary = f"by force: cuMem allocates strictly near; {placed.summary}"
        return passed(facts.subject, summary, (*cumem.evidence, *placed.evidence))
    verdicts = [judge_force(host, process) for process in group.ranks]
    if not verdicts:
        return unknown(facts.subject, "no process of it is known to hold a GPU yet, so there is no rank to judge")
    evidence, deciding = (*facts.live, *facts.where), worst(verdicts)
    if deciding.status is Status.PASS:
        far = [file for file in facts.files if file.status is Status.FAIL]
        if far:
            late = (
                f"held from the next start on ({deciding.text}), but {len(far)} of {len(facts.files)} buffers lie far: made before"
            )
            return warned(facts.subject, late, evidence, bind(host, group))
        return passed(facts.subject, f"by force: {deciding.text} ({len(verdicts)} of {len(verdicts)} ranks held)", evidence)
    if deciding.status is Status.UNKNOWN:
        return unknown(facts.subject, deciding.text, evidence, f"{AS_ROOT}; with --near NODES where no GPU is visible")
    if deciding.status is Status.FAIL:
        return failed(facts.subject, deciding.text, evidence, bind(host, group))
    free = sum(verdict.status is Status.WARN for verdict in verdicts)
    return warned(facts.subject, f"by luck ({free} of {len(verdicts)} ranks free): {deciding.text}", evidence, bind(host, group))
