"""The fingerprint: what a plan rests on, hashed, and what a start does where the host no longer has it. Pure."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model import cpulist
from nearsocket.model.errors import NearsocketError
from nearsocket.model.host import Host, Node
from nearsocket.model.plan.memory import about
from nearsocket.model.settings import OnChange
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.fingerprint/1"
#: A kernel or firmware update moves a node's MemTotal by some MiB; a lost DIMM or an SNC flip by far more.
MEMORY_TOLERANCE = 0.05
GIB = 1 << 30
#: The source of a snapshot that holds the fingerprint of the generation in force.
IN_FORCE = "generation.fingerprint"


@dataclass(frozen=True)
class NodePrint:
    """A node: its socket (None where not known), CPUs as a list text, memory in bytes (None where not read), to half a percent."""

    id: int
    socket: Optional[int]
    cpus: str
    memory_bytes: Optional[int]


@dataclass(frozen=True)
class GpuPrint:
    """A GPU: what counts is the address and its node; the UUID is recorded to tell of a card that was changed."""

    pci: str
    node: Optional[int]
    socket: Optional[int]
    uuid: Optional[str]


@dataclass(frozen=True)
class Fingerprint:
    """Sockets, nodes, CPUs, memory per node, and GPUs by PCI address, each in ascending order."""

    nodes: tuple[NodePrint, ...]
    gpus: tuple[GpuPrint, ...]

    @property
    def digest(self) -> str:
        """`sha256:...` over all but the UUIDs."""
        nodes = [[n.id, n.socket, n.cpus, n.memory_bytes] for n in self.nodes]
        gpus = [[g.pci, g.node, g.socket] for g in self.gpus]
        text = json.dumps([nodes, gpus], separators=(",", ":"))
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """JSON's own values: `{schema, digest, nodes, gpus}`."""
        return {
            "schema": SCHEMA,
            "digest": self.digest,
            "nodes": [{"id": n.id, "socket": n.socket, "cpus": n.cpus, "memory_bytes": n.memory_bytes} for n in self.nodes],
            "gpus": [{"pci": g.pci, "node": g.node, "socket": g.socket, "uuid": g.uuid} for g in self.gpus],
        }


def of_host(host: Host) -> Fingerprint:
    """The host's fingerprint. What a boot alone moves is left out: see `steady`."""
    nodes = tuple(
        NodePrint(n.id, n.socket, cpulist.render(n.cpus), about(n.memory.total_bytes) if n.memory else None)
        for n in sorted(steady(host).nodes, key=lambda node: node.id)
    )
    gpus = tuple(GpuPrint(g.pci, g.node, g.socket, g.uuid) for g in sorted(host.gpus, key=lambda gpu: gpu.pci))
    return Fingerprint(nodes, gpus)


def steady(host: Host) -> Host:
    """The host with the memory per node that the generation in force rests on, where that differs by no more than a boot does.

    A plan would else be another one behind every boot, and its replicas' paths to be proven again.
    """
    try:
        known = {n.id: n.memory_bytes for n in from_json(json.loads(host.source(IN_FORCE).text or "")).nodes}
    except (NearsocketError, ValueError):
        return host
    return dataclasses.replace(host, nodes=tuple(_held(node, known.get(node.id)) for node in host.nodes))


def _held(node: Node, was: Optional[int]) -> Node:
    if node.memory is None or not isinstance(was, int) or _memory_differs(was, node.memory.total_bytes):
        return node
    return dataclasses.replace(node, memory=dataclasses.replace(node.memory, total_bytes=was))


def from_json(value: Mapping[str, Any]) -> Fingerprint:
    """The fingerprint that `to_json` made. Raises NearsocketError for another schema or shape."""
    try:
        if value["schema"] != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found {one_line(str(value['schema']), 60)}")
        nodes = tuple(NodePrint(n["id"], n["socket"], n["cpus"], n["memory_bytes"]) for n in value["nodes"])
        return Fingerprint(nodes, tuple(GpuPrint(g["pci"], g["node"], g["socket"], g["uuid"]) for g in value["gpus"]))
    except (KeyError, TypeError) as error:
        raise NearsocketError(f"expected a fingerprint, found a value without {one_line(str(error), 60)}") from None


class Verdict(str, enum.Enum):
    """What a start does."""

    START = "start"
    UNBOUND = "start-unbound"
    REFUSE = "refuse"


@dataclass(frozen=True)
class StartDecision:
    """The verdict, what goes before it on the page (`warnings`), and the GPUs' UUIDs now, by PCI address."""

    verdict: Verdict
    warnings: tuple[str, ...]
    uuids: Mapping[str, Optional[str]]


def decide(expected: Fingerprint, found: Fingerprint, gpus: Iterable[str], policy: OnChange) -> StartDecision:
    """What a start of a replica on `gpus` does on the host as it is now.

    A GPU that is gone: refused. A new UUID in a slot: started with a warning. Nodes, or a GPU's node, changed: unbound and loud,
    or refused, as the policy says. GPUs that are not the replica's do not count.
    """
    before, now = {g.pci: g for g in expected.gpus}, {g.pci: g for g in found.gpus}
    wanted = tuple(gpus)
    uuids = {pci: now[pci].uuid if pci in now else None for pci in wanted}
    gone = [f"GPU {pci} is gone" for pci in wanted if pci not in now]
    if gone:
        return StartDecision(Verdict.REFUSE, tuple(gone), uuids)
    warnings = [
        f"GPU {pci}: another card in this slot ({one_line(str(now[pci].uuid), 60)}, was {one_line(str(before[pci].uuid), 60)})"
        for pci in wanted
        if pci in before and before[pci].uuid and now[pci].uuid and before[pci].uuid != now[pci].uuid
    ]
    changed = node_changes(expected, found)
    changed += [
        f"GPU {pci}: node {now[pci].node} on socket {now[pci].socket}, was node {before[pci].node} on socket {before[pci].socket}"
        for pci in wanted
        if pci in before and (before[pci].node, before[pci].socket) != (now[pci].node, now[pci].socket)
    ]
    if not changed:
        return StartDecision(Verdict.START, tuple(warnings), uuids)
    verdict = Verdict.REFUSE if policy is OnChange.REFUSE else Verdict.UNBOUND
    return StartDecision(verdict, (*changed, *warnings), uuids)


def node_changes(expected: Fingerprint, found: Fingerprint) -> list[str]:
    """How the nodes differ, one line each; memory within 5 % is the same."""
    before, now = {n.id: n for n in expected.nodes}, {n.id: n for n in found.nodes}
    lines = [f"node {id} is gone" for id in sorted(before.keys() - now.keys())]
    lines += [f"node {id} is new" for id in sorted(now.keys() - before.keys())]
    for id in sorted(before.keys() & now.keys()):
        was, has = before[id], now[id]
        if was.socket != has.socket:
            lines.append(f"node {id}: on socket {has.socket}, was on {was.socket}")
        if was.cpus != has.cpus:
            lines.append(f"node {id}: CPUs {one_line(has.cpus, 80) or 'none'}, was {one_line(was.cpus, 80) or 'none'}")
        if _memory_differs(was.memory_bytes, has.memory_bytes):
            lines.append(f"node {id}: memory {_gib(has.memory_bytes)}, was {_gib(was.memory_bytes)}")
    return lines


def _memory_differs(was: Optional[int], has: Optional[int]) -> bool:
    if was is None or has is None:
        return was != has
    return abs(was - has) > MEMORY_TOLERANCE * max(was, has)


def _gib(count: Optional[int]) -> str:
    return "not known" if count is None else f"{count / GIB:.1f} GiB"
