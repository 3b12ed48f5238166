"""What GPUs and network cards have in common: sysfs's claims, the PCIe link and the bridges above; and the network cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from nearsocket.model.host import Nic, Node, NodeClaim, PciLink
from nearsocket.model.parsers import pci
from nearsocket.model.parsers.pci import PciEntry
from nearsocket.model.read import claims
from nearsocket.model.read.notes import Notes

NO_LINK = PciLink()


def sysfs_claims(entry: Optional[PciEntry], nodes: Sequence[Node]) -> tuple[NodeClaim, ...]:
    """sysfs's word: numa_node, or the device's CPU list where the kernel has no such file."""
    if entry is None:
        return ()
    if entry.numa_node is not None:
        return (claims.by_number("sysfs", entry.numa_node, nodes),)
    if entry.local_cpus is not None:
        return (claims.by_cpus("sysfs", entry.local_cpus, nodes),)
    return ()


def bridge_links(entry: Optional[PciEntry], entries: Mapping[str, PciEntry]) -> Mapping[str, PciLink]:
    """Each bridge's own link, root first; one that sysfs did not tell about has an empty link."""
    return {at: entries[at].link if at in entries else NO_LINK for at in (entry.path if entry else ())}


def title(entry: PciEntry) -> str:
    """A name where nobody gives one: the vendor's and the device's numbers."""
    return f"PCI {entry.vendor.removeprefix('0x') or '?'}:{entry.device.removeprefix('0x') or '?'}"


def nics(entries: Mapping[str, PciEntry], nodes: Sequence[Node], notes: Notes) -> tuple[Nic, ...]:
    """The network cards by address. Their name is their driver's and interfaces', since no source has another."""
    return tuple(_nic(entry, entries, nodes, notes) for entry in entries.values() if entry.is_nic)


def _nic(entry: PciEntry, entries: Mapping[str, pci.PciEntry], nodes: Sequence[Node], notes: Notes) -> Nic:
    said = sysfs_claims(entry, nodes)
    place = claims.agree(f"network card {entry.address}", said, nodes, notes)
    return Nic(
        pci=entry.address,
        name=" ".join([entry.driver or title(entry), *entry.interfaces]),
        node=place.node,
        socket=place.socket,
        claims=said,
        link=entry.link,
        bridges=entry.path,
        bridge_links=bridge_links(entry, entries),
        root=entry.root,
        driver=entry.driver,
        interfaces=entry.interfaces,
    )
