"""Hardware: what is gone, smaller or narrower is a regression; what was only not read is none. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.compare.values import Change, Grade, Section, differing, shown
from nearsocket.model.host import Gpu, Host, Node
from nearsocket.model.verdicts.pcie import WIDEST
from nearsocket.model.verdicts.reading import gib, refused

#: A kernel of another version keeps a little more or less for itself; a memory module is never that small.
_SAME_MEMORY = 0.01


def changes(before: Host, after: Host) -> Iterator[Change]:
    """Everything that the two hosts show of their hardware."""
    yield from _gpus(before, after)
    yield from _nodes(before, after)
    yield from _sockets(before, after)
    if not refused(after, "pci") and not refused(before, "pci"):
        yield from _nics(before, after)


def _gpus(before: Host, after: Host) -> Iterator[Change]:
    old, new = {gpu.pci: gpu for gpu in before.gpus}, {gpu.pci: gpu for gpu in after.gpus}
    for pci in sorted({*old, *new}):
        subject = f"GPU {pci}"
        if pci not in new:
            if not refused(after, "pci"):
                yield Change(Section.HARDWARE, Grade.FAIL, subject, "lost", shown(old[pci].name), None)
        elif pci not in old:
            if not refused(before, "pci"):
                yield Change(Section.HARDWARE, Grade.BETTER, subject, "new", None, shown(new[pci].name))
        else:
            yield from _gpu(subject, old[pci], new[pci])


def _gpu(subject: str, old: Gpu, new: Gpu) -> Iterator[Change]:
    told = (
        ("name", old.name, new.name),
        ("UUID (another card)", old.uuid, new.uuid),
        ("node", old.node, new.node),
        ("driver", old.driver, new.driver),
        ("index", old.index, new.index),
        ("bridges", " ".join(old.bridges), " ".join(new.bridges)),
    )
    yield from differing(Section.HARDWARE, subject, told)
    yield from _size(subject, "memory", old.memory_bytes, new.memory_bytes)
    yield from _less(subject, "PCIe lanes", _lanes(old.link.width), _lanes(new.link.width), Grade.FAIL)
    yield from _less(subject, "PCIe speed at most, GT/s", old.link.max_speed_gts, new.link.max_speed_gts, Grade.WARN)
    yield from _less(subject, "NVLinks", old.nvlinks_active, new.nvlinks_active, Grade.FAIL)
    yield from _peers(subject, "link to", old.links, new.links, Grade.CHANGED)
    yield from _peers(subject, "P2P with", old.p2p, new.p2p, Grade.WARN)


def _peers(subject: str, what: str, old: Mapping[str, str], new: Mapping[str, str], lost: Grade) -> Iterator[Change]:
    """How it reaches each other GPU that both sides name."""
    for peer in sorted(old.keys() & new.keys()):
        if old[peer] != new[peer]:
            grade = lost if old[peer].upper() == "OK" else Grade.BETTER if new[peer].upper() == "OK" else Grade.CHANGED
            yield Change(Section.HARDWARE, grade, subject, f"{what} {peer}", shown(old[peer]), shown(new[peer]))


def _nodes(before: Host, after: Host) -> Iterator[Change]:
    if not after.nodes or not before.nodes:
        return
    old, new = {node.id: node for node in before.nodes}, {node.id: node for node in after.nodes}
    for id in sorted({*old, *new}):
        if id not in new:
            yield Change(Section.HARDWARE, Grade.FAIL, f"node {id}", "lost", _node(old[id]), None)
        elif id not in old:
            yield Change(Section.HARDWARE, Grade.CHANGED, f"node {id}", "new", None, _node(new[id]))
        else:
            yield from _node_changes(f"node {id}", old[id], new[id])


def _node_changes(subject: str, old: Node, new: Node) -> Iterator[Change]:
    yield from differing(
        Section.HARDWARE, subject, (("socket", old.socket, new.socket), ("distances", old.distances, new.distances))
    )
    yield from _less(subject, "CPUs", len(old.cpus), len(new.cpus), Grade.FAIL)
    if len(old.cpus) == len(new.cpus):
        yield from differing(Section.HARDWARE, subject, (("CPUs", cpulist.render(old.cpus), cpulist.render(new.cpus)),))
    if old.memory and new.memory:
        yield from _size(subject, "memory", old.memory.total_bytes, new.memory.total_bytes)


def _node(node: Node) -> str:
    return f"{len(node.cpus)} CPUs, {gib(node.memory.total_bytes if node.memory else None)}"


def _sockets(before: Host, after: Host) -> Iterator[Change]:
    if before.sockets and after.sockets:
        yield from _less("sockets", "count", len(before.sockets), len(after.sockets), Grade.FAIL)


def _nics(before: Host, after: Host) -> Iterator[Change]:
    old, new = {nic.pci: nic for nic in before.nics}, {nic.pci: nic for nic in after.nics}
    for pci in sorted({*old, *new}):
        if pci not in new:
            yield Change(Section.HARDWARE, Grade.WARN, f"NIC {pci}", "lost", shown(old[pci].name), None)
        elif pci not in old:
            yield Change(Section.HARDWARE, Grade.CHANGED, f"NIC {pci}", "new", None, shown(new[pci].name))
        else:
            yield from _less(f"NIC {pci}", "PCIe lanes", _lanes(old[pci].link.width), _lanes(new[pci].link.width), Grade.WARN)


def _size(subject: str, what: str, old: Optional[int], new: Optional[int]) -> Iterator[Change]:
    """Bytes: fewer are a regression, beyond what another kernel or driver keeps for itself."""
    if old and new and abs(new - old) > _SAME_MEMORY * old:
        grade = Grade.FAIL if new < old else Grade.BETTER
        yield Change(Section.HARDWARE, grade, subject, what, gib(old), gib(new))


def _less(subject: str, what: str, old: Optional[float], new: Optional[float], grade: Grade) -> Iterator[Change]:
    if old is not None and new is not None and old != new:
        yield Change(Section.HARDWARE, grade if new < old else Grade.BETTER, subject, what, f"{old:g}", f"{new:g}")


def _lanes(width: Optional[int]) -> Optional[int]:
    """Lanes; what virtual machines invent (0, 63, 255) is "not told"."""
    return width if width and 0 < width <= WIDEST else None
