"""Where a probe's own buffers lay: its ranks found in what was read of the host while they held their communicator. Pure."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Optional

from nearsocket.model import read
from nearsocket.model.containment import same_container
from nearsocket.model.finding import Evidence, Finding, not_applicable, unknown
from nearsocket.model.host import Host, Process
from nearsocket.model.probe.order import Backend
from nearsocket.model.probe.starts import Started
from nearsocket.model.text import fault
from nearsocket.model.verdict import WORDS, Word
from nearsocket.model.verdicts import proof
from nearsocket.model.verdicts.groupfacts import GroupFacts
from nearsocket.model.verdicts.groups import Group
from nearsocket.model.verdicts.placement import Placement


class Where(str, enum.Enum):
    """Where one start's buffers landed."""

    NEAR = "near"
    FAR = "far"
    SPLIT = "split"
    NONE = "no host buffers"
    UNKNOWN = "unknown"


def judge(
    subject: str, started: Started, backend: Backend, container: str = "", near: Optional[frozenset[int]] = None
) -> tuple[Finding, Where]:
    """`nccl.buffer-placement` of the probe's ranks by the audit's own rule, and the word for a lottery.

    gloo moves data through sockets between CPUs: it never carries a placement verdict. `near`: the user's word.
    """
    if backend is Backend.GLOO:
        shown = Evidence("backend", "gloo: CPU memory and sockets, no GPU and no NCCL")
        return not_applicable(
            subject, "the backend gloo has no NCCL buffers: it says nothing about placement", (shown,)
        ), Where.NONE
    if started.seen is None:
        why = started.failed or "the host was not read while the ranks held their communicator"
        return unknown(subject, f"not seen: {why}"), Where.UNKNOWN
    try:
        host = read.host(started.seen, near)
    except Exception as error:  # a snapshot is outside text; the figures must not go with it
        return unknown(subject, f"what was read of the host cannot be parsed ({fault(error)})"), Where.UNKNOWN
    ranks = tuple(known for known in (_rank(host, started, number, container) for number in range(len(started.pids))) if known)
    if not ranks or len(ranks) < len(started.pids):
        found = f"{len(ranks)} of {len(started.pids)} ranks are among the processes that were read"
        return unknown(subject, found, (Evidence("processes", found),), "run it as root on the host"), Where.UNKNOWN
    by_pid = {rank.pid: rank for rank in ranks}
    host = dataclasses.replace(host, processes=tuple(by_pid.get(p.pid, p) for p in host.processes))
    owner = next((one for one in host.containers if container and one.name == container), None)
    facts = GroupFacts(host, Group(subject, None, ranks, ranks, owner, None))
    finding = proof.placement(facts)
    return finding, _where(facts, finding)


def _rank(host: Host, started: Started, number: int, container: str) -> Optional[Process]:
    """The process of that rank, with the GPU that the rank itself names: NVML and open devices may name several, or none."""
    pid = started.pids[number]
    inside = [one.id for one in host.containers if one.name == container] if container else []
    for process in host.processes:
        there = any(same_container(id, process.container) for id in inside)
        mine = there and process.nspid[-1:] == (pid,) if container else process.pid == pid
        if mine:
            pci = _text(started.facts.get(number, {}), "pci")
            return dataclasses.replace(process, gpus=(pci,)) if pci and host.gpu(pci) is not None else process
    return None


def _text(facts: Mapping[str, Any], name: str) -> Optional[str]:
    value = facts.get(name)
    return value if isinstance(value, str) else None


def _where(facts: GroupFacts, finding: Finding) -> Where:
    """The proof's word for it; what the proof calls far is told apart here: all of every file, or parts."""
    word = WORDS.get(finding.status, Word.UNKNOWN)
    if word is Word.FAR:
        places = {file.placement for file in facts.files}
        return Where.SPLIT if places - {Placement.FAR} else Where.FAR  # no file: cuMem's, by the log
    return {Word.NEAR: Where.NEAR, Word.NOT_APPLICABLE: Where.NONE}.get(word, Where.UNKNOWN)
