"""The verdicts on one group that every judgement of a running engine gives: an audit's checks and the proof at a start call these.

Each takes the group's facts and gives one finding with an empty id, which the caller stamps.
"""

from __future__ import annotations

import dataclasses
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.finding import Evidence, Finding, Status, failed, not_applicable, passed, unknown, warned
from nearsocket.model.near import one_socket
from nearsocket.model.verdicts.binding import judge_binding, worst
from nearsocket.model.verdicts.cumem import SHOW_MORE
from nearsocket.model.verdicts.enforced import judge_force
from nearsocket.model.verdicts.groupfacts import GroupFacts
from nearsocket.model.verdicts.groups import AS_ROOT
from nearsocket.model.verdicts.placement import NO_BUFFERS, placement_finding
from nearsocket.model.verdicts.preconditions import shm_reasons
from nearsocket.model.verdicts.remedies import ask_nccl, bind, pin


def placement(facts: GroupFacts) -> Finding:
    """`nccl.buffer-placement`: where the group's ring buffers lie, by its files, else by NCCL's log."""
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


def enforced(facts: GroupFacts) -> Finding:
    """`nccl.placement-enforced`: whether they are held near by force or lie where they lie by luck."""
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


def cumem(facts: GroupFacts) -> Finding:
    """`nccl.cumem-in-force`: whether cuMem holds the group's host buffers."""
    group, told = facts.group, facts.in_force
    if facts.free is not None:
        return facts.free
    if told is not None and told.status in (Status.PASS, Status.NOT_APPLICABLE):
        if not facts.files:
            return told
        told = None  # the log is what was, a mapped ring file is what is: the file wins
    if facts.holder is not None and all(file.status is Status.PASS for file in facts.files) and facts.denied is None:
        return not_applicable(facts.subject, f"{facts.holder} holds all buffers near; cuMem is not needed", facts.live)
    if told is not None:
        return told
    reasons = shm_reasons(facts.host, group)
    evidence = [*(Evidence(file.buffer.file, f"{file.buffer.size_bytes} bytes, mapped") for file in facts.files[:4])]
    evidence += [reason.evidence for reason in reasons]
    if facts.files:
        why = "; ".join(reason.text for reason in reasons) or "nothing that the host shows says why"
        summary = f"not in force: {len(facts.files)} ring buffers are files: {why}"
        remedy = "\n".join([*(f"# {reason.remedy}" for reason in reasons), pin(group)])
        return failed(facts.subject, summary, evidence, remedy)
    if facts.denied is not None:
        return unknown(facts.subject, f"buffers not read: {facts.denied}", evidence, AS_ROOT)
    doubt = f"; {reasons[0].text}" if reasons else ""
    summary = f"neither NCCL's log nor a ring file was found{doubt}"
    return unknown(facts.subject, summary, evidence, f"{ask_nccl(group)}\n# {SHOW_MORE}")


def binding(facts: GroupFacts) -> Finding:
    """`engine.binding`: whether each rank's CPUs and memory are held on its GPU's socket."""
    host, group = facts.host, facts.group
    absent = no_other_socket(facts) or no_ranks(facts)
    if absent is not None:
        return absent
    verdicts = [judge_binding(host, process) for process in group.ranks]
    deciding = worst(verdicts)
    same = sum(verdict.status is deciding.status for verdict in verdicts)
    evidence = (*facts.where, *facts.live)
    summary = f"{same} of {len(verdicts)} ranks: {deciding.text}" if len(verdicts) > 1 else deciding.text
    if deciding.status is Status.PASS:
        return passed(group.subject, summary, evidence)
    if deciding.status is Status.UNKNOWN:
        return unknown(group.subject, summary, evidence, f"{AS_ROOT}; with --near NODES where no GPU is visible")
    make = failed if deciding.status is Status.FAIL else warned
    return make(group.subject, summary, evidence, bind(host, group))


def no_other_socket(facts: GroupFacts) -> Optional[Finding]:
    """Not-applicable on a host with one socket; None on others."""
    if not one_socket(facts.host):
        return None
    nodes = cpulist.render(node.id for node in facts.host.nodes)
    return not_applicable(facts.subject, f"one socket (node {nodes}): nothing can be far", (Evidence("nodes", f"node {nodes}"),))


def no_ranks(facts: GroupFacts) -> Optional[Finding]:
    """Unknown where no process of the group is known to hold a GPU; None where one does."""
    if facts.group.ranks:
        return None
    seen = Evidence("processes", f"pids {', '.join(str(process.pid) for process in facts.group.processes)}")
    summary = "no process of it is known to hold a GPU yet, so there is no rank to judge"
    return unknown(facts.subject, summary, (seen,), "nearsocket audit @local  # again, after the load")
