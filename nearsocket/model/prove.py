"""From what one replica's processes look like to a verdict on its start: the audit's judgements on this replica alone. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model.check import Check
from nearsocket.model.finding import Evidence, Finding, failed, unknown
from nearsocket.model.host import Host
from nearsocket.model.start import Start
from nearsocket.model.text import brief
from nearsocket.model.verdict import PLACEMENT, RANKS, Trigger, Verdict, Word, judged
from nearsocket.model.verdicts import proof, startfacts
from nearsocket.model.verdicts.groupfacts import GroupFacts
from nearsocket.model.verdicts.groups import Group, groups

_JUDGES: tuple[tuple[str, Callable[[GroupFacts], Finding]], ...] = (
    (PLACEMENT, proof.placement),
    ("nccl.placement-enforced", proof.enforced),
    ("nccl.cumem-in-force", proof.cumem),
    ("nccl.transport", startfacts.transport),
    ("nccl.affinity", startfacts.affinity),
    ("engine.binding", proof.binding),
)
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z")


@dataclass(frozen=True)
class Around:
    """What is known beside the processes. `start`: the start's folder, by name; `now`, ISO 8601 in UTC.

    `running`: how many processes the replica has in all; None where it has no control group. `notes`: what was odd while reading.
    """

    start: str
    now: str
    trigger: Trigger
    running: Optional[int]
    boot_id: Optional[str] = None
    notes: tuple[str, ...] = ()
    took_s: float = 0.0
    basis: dict[str, Any] = field(default_factory=dict)
    extra: tuple[Finding, ...] = ()


def prove(host: Host, start: Start, around: Around) -> Verdict:
    """The verdict on this start. `host`: read from the replica's own processes and the machine's nodes and GPUs."""
    subject = f"replica {brief(start.replica)}"
    facts = facts_of(host, subject)
    if facts is None:
        found, ranks, by_node = _nothing(subject, start, around), 0, Counter[int]()
    else:
        found = tuple(_judge(id, judge, facts) for id, judge in _JUDGES)
        found += (_judge(RANKS, lambda one: startfacts.rank_count(one, start.gpus), facts),)
        held = {pci for process in facts.group.ranks for pci in process.gpus}
        # Processes that are known to hold other GPUs are no ranks of the plan's, however many they are.
        ranks = len(held & set(start.gpus)) if held else len(facts.group.ranks)
        by_node = Counter()
        for file in facts.files:
            by_node.update(file.buffer.by_node)
    found += around.extra
    word, holder, status, summary = judged(found)
    return Verdict(
        replica=start.replica,
        unit=start.unit,
        start=around.start,
        started_at=started_at(around.start) or around.now,
        judged_at=around.now,
        trigger=around.trigger,
        policy=start.verify.policy,
        word=word,
        held=holder,
        status=status,
        summary=summary,
        ranks_planned=len(start.gpus),
        ranks_found=ranks,
        by_node={str(node): by_node[node] for node in sorted(by_node)},
        findings=found,
        notes=(*around.notes, *host.notes)[:20],
        boot_id=around.boot_id,
        took_s=around.took_s,
        metrics=start.verify.metrics,
        basis=around.basis,
    )


def settled(verdict: Verdict) -> bool:
    """Whether waiting longer can change nothing: the placement is decided and every planned rank is there."""
    return verdict.word is not Word.UNKNOWN and verdict.ranks_found >= verdict.ranks_planned


def started_at(folder: str) -> Optional[str]:
    """The moment in the name of a start's folder (`20260101T020304Z-77`) as ISO 8601; None where it has none."""
    match = _STAMP.match(folder)
    return "{}-{}-{}T{}:{}:{}Z".format(*match.groups()) if match else None


def facts_of(host: Host, subject: str) -> Optional[GroupFacts]:
    """All groups of the replica's processes as one; None where no process uses a GPU or an nccl- file.

    An engine's ranks that nothing ties (no shared file yet, titles of their own) are groups apart, and yet one replica.
    """
    found = groups(host)
    if not found:
        return None
    first = next((group for group in found if group.engine is not None), found[0])
    processes = {process.pid: process for group in found for process in group.processes}
    ranks = {process.pid: process for group in found for process in group.ranks}
    ordered = sorted(ranks.values(), key=lambda p: (p.rank is None, p.rank or 0, p.pid))
    members = tuple(processes[pid] for pid in sorted(processes))
    return GroupFacts(host, Group(subject, first.engine, members, tuple(ordered), first.container, first.unit))


def _judge(id: str, judge: Callable[[GroupFacts], Finding], facts: GroupFacts) -> Finding:
    """The finding with its id; a fault in the judgement is `unknown`, never an engine's end."""
    return Check(id, lambda _: [judge(facts)], "", "").run(facts.host)[0]


def _nothing(subject: str, start: Start, around: Around) -> tuple[Finding, ...]:
    """What is to be said where no process of the replica matters."""
    count = around.running
    seen = "it has no control group" if count is None else f"its control groups have {count} processes"
    shown = (Evidence(f"cgroup {start.slice}", seen),)
    text = f"no process of it works on a GPU or has an nccl- file; {seen}"
    look = f"systemctl status {start.unit}"
    ranks = failed(subject, f"0 of {len(start.gpus)} ranks: {text}", shown, look)
    made = ((PLACEMENT, unknown(subject, text, shown, look)), (RANKS, ranks))
    return tuple(dataclasses.replace(finding, id=id) for id, finding in made)
