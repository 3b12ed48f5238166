"""Verdicts on a start beside where its buffers lie: how its ranks talk, where NCCL keeps their threads, whether all are there.

As in verdicts/proof.py: each gives one finding with an empty id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nearsocket.model import cpulist, near
from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown, warned
from nearsocket.model.text import brief
from nearsocket.model.verdicts.binding import near_cpus
from nearsocket.model.verdicts.groupfacts import GroupFacts
from nearsocket.model.verdicts.groups import who
from nearsocket.model.verdicts.ranklogs import RankLog
from nearsocket.model.verdicts.remedies import ask_nccl, bind


def transport(facts: GroupFacts) -> Finding:
    """`nccl.transport`: by which way the ranks exchange data, by NCCL's log, else by what they map."""
    log = facts.log
    if log is None or not log.log.transports:
        if facts.files:
            shown = [Evidence(file.buffer.file, f"{file.buffer.size_bytes} bytes, mapped") for file in facts.files[:4]]
            return passed(facts.subject, f"through host memory: {len(facts.files)} ring buffers are mapped", shown)
        if facts.free is not None:
            return facts.free
        return unknown(facts.subject, "NCCL's log names no transport, and no ring buffer is mapped", (), ask_nccl(facts.group))
    counts = Counter(brief(one.word, 40) for one in log.log.transports)
    first = {brief(one.word, 40): one for one in reversed(log.log.transports)}
    shown = [Evidence(f"{log.source} {one.line.number}", brief(one.line.text.strip(), 200)) for one in first.values()]
    told = ", ".join(f"{word} ({count} lines)" for word, count in counts.most_common())
    outside = sorted(word for word in counts if word.startswith("NET/"))
    if outside:
        remedy = "nvidia-smi topo -p2p r  # and look for NCCL_SHM_DISABLE and NCCL_P2P_DISABLE in environment and conf files"
        return warned(facts.subject, f"ranks of one host talk through the network ({', '.join(outside)}): {told}", shown, remedy)
    if not log.complete:
        return unknown(facts.subject, f"{told}; but not every rank's log was found whole", shown, ask_nccl(facts.group))
    return passed(facts.subject, told, shown)


def affinity(facts: GroupFacts) -> Finding:
    """`nccl.affinity`: NCCL set each rank's threads on CPUs of its GPU's socket, by its own log."""
    if near.one_socket(facts.host):
        nodes = Evidence("nodes", f"node {cpulist.render(node.id for node in facts.host.nodes)}")
        return not_applicable(facts.subject, "one socket: no CPU is far", (nodes,))
    log = facts.log
    parts = [part for part in log.parts if part.process is not None and part.log.affinity] if log else []
    if log is None or not parts:
        seen = [Evidence("nccl.logs", "no line on affinity")]
        return unknown(facts.subject, "NCCL's log does not say which CPUs it gave the ranks", seen, ask_nccl(facts.group))
    lost = [part.process for part in parts if part.process is not None and near.of_process(facts.host, part.process) is None]
    if lost:
        summary = f"{who(lost[0])}: the node of its GPU is not known"
        return unknown(facts.subject, summary, facts.where, "nearsocket audit --near NODES")
    wrong = [part for part in parts if _astray(facts, part)]
    shown = [Evidence(f"NCCL log of {who(part.process)}", _said(part)) for part in parts if part.process is not None]
    if wrong:
        named = "; ".join(f"{who(part.process)}: {_astray(facts, part)}" for part in wrong if part.process is not None)
        return warned(facts.subject, named, (*shown, *facts.where), bind(facts.host, facts.group))
    ranks = len(facts.group.ranks)
    if len(parts) < ranks:
        return unknown(facts.subject, f"only {len(parts)} of {ranks} ranks' logs say it", shown, ask_nccl(facts.group))
    return passed(facts.subject, f"{len(parts)} of {ranks} ranks on CPUs near their GPU", (*shown, *facts.where))


def _said(part: RankLog) -> str:
    return "; ".join(f"GPU {gpu}: {cpus or 'empty, ignoring'}" for gpu, cpus in part.log.affinity)


def _astray(facts: GroupFacts, part: RankLog) -> str:
    """What is wrong with a rank's CPUs, in words; empty where nothing is. Where NCCL set none, the process's own count."""
    process = part.process
    home = near.of_process(facts.host, process) if process is not None else None
    if process is None or home is None:
        return ""
    wanted, at = near_cpus(facts.host, home), f"its GPU is at node {cpulist.render(home)}"
    for _, told in part.log.affinity:
        cpus = cpulist.parse(told) if told else process.cpus
        if not cpus or not cpus <= wanted:
            where = f"CPUs {cpulist.render(cpus)}" if cpus else "CPUs that are not known"
            return f"NCCL {'set' if told else 'left'} it on {where}, {at}"
    return ""


def rank_count(facts: GroupFacts, planned: Sequence[str]) -> Finding:
    """`engine.rank-count`: a process of the replica works on each GPU (PCI address) that the plan gave it."""
    group, subject = facts.group, facts.subject
    held = {pci: process for process in group.ranks for pci in process.gpus}
    shown = [Evidence(f"/proc/{process.pid}", f"{who(process)} holds GPU {pci}") for pci, process in sorted(held.items())]
    shown.append(Evidence("plan", f"{len(planned)} GPUs: {', '.join(planned)}"))
    look = "nvidia-smi  # and the unit's journal: a worker that died leaves an API that answers and does not serve"
    if not held:
        count = len(group.ranks)
        if count >= len(planned):
            return passed(subject, f"{count} ranks, the plan has {len(planned)} GPUs (which one each holds was not told)", shown)
        return unknown(subject, f"no process of it is known to hold a GPU; {count} ranks, the plan has {len(planned)}", shown, look)
    missing = [pci for pci in planned if pci not in held]
    foreign = sorted(set(held) - set(planned))
    if missing:
        summary = f"{len(planned) - len(missing)} of {len(planned)} ranks: no process of it holds GPU {', '.join(missing)}"
        return failed(subject, summary, shown, look)
    if foreign:
        return warned(subject, f"it also works on GPU {', '.join(foreign)}, which the plan did not give it", shown, look)
    return passed(subject, f"{len(planned)} of {len(planned)} ranks: each planned GPU is held", shown)
