"""What each source says about a device's node, and what they agree on.

A claim names one node, several (a CPU list under SNC or NPS), or none (-1, N/A). A CPU list that spans several sockets
says nothing: NVML and sysfs give all CPUs where the platform tells no locality. Claims agree where some node is in all of
them. One node left is the device's node; several of one socket leave the node open and settle the socket; near is by
socket, so that suffices. Where no node is in all claims, node is None, and the socket is known only if all stay within one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.host import Node, NodeClaim
from nearsocket.model.parsers import take
from nearsocket.model.read.notes import Notes


@dataclass(frozen=True)
class Place:
    """Where a device is, as far as the claims agree."""

    node: Optional[int]
    socket: Optional[int]


def by_number(source: str, text: str, nodes: Sequence[Node]) -> NodeClaim:
    """The claim of a node's number: `1`, or `-1`, `N/A` and anything else for none. A list such as `0-1` names several."""
    named = take.cpus(text.strip())
    if not named or not named <= {node.id for node in nodes}:
        return NodeClaim(source, None, text)
    return _claim(source, text, named, nodes)


def by_cpus(source: str, text: str, nodes: Sequence[Node]) -> NodeClaim:
    """The claim of a CPU list: the nodes whose CPUs it has."""
    cpus = take.cpus(text) or frozenset()
    return _claim(source, text, frozenset(node.id for node in nodes if node.cpus & cpus), nodes)


def _claim(source: str, text: str, named: frozenset[int], nodes: Sequence[Node]) -> NodeClaim:
    sockets = {node.socket for node in nodes if node.id in named}
    if len(named) > 1 and (len(sockets) != 1 or None in sockets):
        return NodeClaim(source, None, text)
    return NodeClaim(source, next(iter(named)) if len(named) == 1 else None, text, named)


def agree(device: str, claims: Sequence[NodeClaim], nodes: Sequence[Node], notes: Notes) -> Place:
    """The node and socket that the claims agree on; a host with one node needs no claim. Disagreement is noted."""
    socket_of = {node.id: node.socket for node in nodes}
    spoken = [claim for claim in claims if claim.nodes]
    if not spoken:
        if len(nodes) == 1:
            notes.add("topology", f"{device}: no source names its node; the host has one node, {nodes[0].id}")
            return Place(nodes[0].id, nodes[0].socket)
        if nodes:
            notes.add("topology", f"{device}: no source names its node ({_texts(claims)})")
        return Place(None, None)
    common = frozenset.intersection(*(claim.nodes for claim in spoken))
    whole = frozenset.union(*(claim.nodes for claim in spoken))
    if len(common) == 1:
        node = next(iter(common))
        return Place(node, socket_of.get(node))
    if not common:
        notes.add("topology", f"{device}: sources disagree on its node ({_texts(claims)})")
    sockets = {socket_of.get(node) for node in common or whole}
    return Place(None, next(iter(sockets)) if len(sockets) == 1 else None)


def _texts(claims: Sequence[NodeClaim]) -> str:
    return ", ".join(f"{claim.source} says {ascii(claim.text)[:60]}" for claim in claims) or "none was read"
