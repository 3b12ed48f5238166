"""Judges what sources say about a GPU's node: one rule for a live host and for a pasted topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.finding import Evidence, Finding, failed, passed, unknown, warned
from nearsocket.model.host import NodeClaim
from nearsocket.model.text import brief
from nearsocket.model.verdicts.reading import told

GPU_NODE = "topology.gpu-node"
LOOK = "cat /sys/bus/pci/devices/*/numa_node; nvidia-smi topo -m  # then: nearsocket audit --near NODES"


def judge_claims(
    subject: str, claims: Sequence[NodeClaim], sockets: Mapping[int, Optional[int]], pci: Optional[str] = None
) -> Finding:
    """Whether the claims on one GPU's node name one node (or one socket) and agree.

    `sockets`: every node that is online to its socket, None where that is not known; empty where the nodes are not
    known (a pasted table shows GPUs only). A claim over several sockets (a virtual machine's "all CPUs") names nothing.
    """
    evidence = [told(claim.source, claim.text) for claim in claims] or [Evidence("sources of the node", "none was read")]
    if len(sockets) == 1:
        only = next(iter(sockets))
        evidence.append(Evidence("nodes online", cpulist.render(sockets)))
        return passed(subject, f"on node {only}, the only one", evidence)
    words = [(claim, _named(claim, sockets)) for claim in claims]
    speaking = [(claim, named) for claim, named in words if named]
    if not speaking:
        return _silent(subject, claims, evidence, sockets)
    offline = {node for _, named in speaking for node in named} - set(sockets)
    if sockets and offline:
        online = Evidence("nodes online", cpulist.render(sockets))
        summary = f"a source names node {cpulist.render(offline)}, which is not online ({cpulist.render(sockets)} are)"
        return failed(subject, summary, [*evidence, online], LOOK)
    said = "; ".join(f"{claim.source} says node {cpulist.render(named)}" for claim, named in speaking)
    common = frozenset.intersection(*(named for _, named in speaking))
    if not common:
        return _disagree(subject, said, evidence, {sockets.get(node) for _, named in speaking for node in named})
    where = f"on node {cpulist.render(common)}"
    mute = [claim.source for claim, named in words if not named and claim.source == "sysfs"]
    if mute and len(set(sockets.values())) > 1:
        node = min(common)
        remedy = (
            "# have the firmware or the hypervisor tell the device's node (_PXM; a pxb bus with numa_node); until the next boot:\n"
        )
        remedy += f"echo {node} | sudo tee /sys/bus/pci/devices/{pci}/numa_node" if pci else LOOK
        summary = f"{where} ({said}), but sysfs says none: NCCL reads sysfs and binds its threads to no node"
        return warned(subject, summary, evidence, remedy)
    return passed(subject, f"{where}: {said}", evidence)


def _named(claim: NodeClaim, sockets: Mapping[int, Optional[int]]) -> frozenset[int]:
    """The nodes that a claim names; none where it spans sockets, which tells nothing."""
    nodes = claim.nodes or (frozenset() if claim.node is None else frozenset({claim.node}))
    on = {sockets.get(node) for node in nodes}
    return nodes if len(nodes) == 1 or (len(on) == 1 and None not in on) else frozenset()


def _silent(subject: str, claims: Sequence[NodeClaim], evidence: list[Evidence], sockets: Mapping[int, Optional[int]]) -> Finding:
    said = (
        "; ".join(f"{claim.source} says {brief(claim.text.strip(), 40) or 'nothing'}" for claim in claims) or "none could be read"
    )
    if sockets and None not in sockets.values() and len(set(sockets.values())) == 1:
        evidence.append(Evidence("nodes online", cpulist.render(sockets)))
        summary = f"on the only socket, its node there not known ({said}): NCCL takes node 0 for its cuMem host memory"
        return warned(subject, summary, evidence, LOOK)
    return unknown(subject, f"no source names the node ({said}): near and far cannot be told", evidence, LOOK)


def _disagree(subject: str, said: str, evidence: list[Evidence], on: set[Optional[int]]) -> Finding:
    if len(on) == 1 and None not in on:
        return warned(subject, f"sources name different nodes of one socket: {said}", evidence, LOOK)
    return failed(subject, f"sources disagree: {said}; what binds by one is far by the other", evidence, LOOK)
