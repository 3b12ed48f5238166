"""Where one group's buffers lie: its files against the nodes of its GPUs, or cuMem's buffers by NCCL's log. Pure."""

from __future__ import annotations

import dataclasses

from nearsocket.model.finding import Evidence, Finding, Status, unknown
from nearsocket.model.verdicts.groupfacts import GroupFacts
from nearsocket.model.verdicts.groups import AS_ROOT
from nearsocket.model.verdicts.placement import NO_BUFFERS, placement_finding
from nearsocket.model.verdicts.remedies import ask_nccl, bind


def judge_group(facts: GroupFacts) -> Finding:
    """`nccl.buffer-placement` of one group."""
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
