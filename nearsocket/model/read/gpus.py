"""GPUs, merged by PCI address from sysfs, NVML, /proc/driver/nvidia and `nvidia-smi topo -m`; every word on the node kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.host import Gpu, Node, NodeClaim, PciLink
from nearsocket.model.parsers import nvidia_proc, pci, take
from nearsocket.model.parsers.nvidia_proc import GpuInformation
from nearsocket.model.parsers.pci import PciEntry
from nearsocket.model.read import claims, devices
from nearsocket.model.read.notes import Notes, quoted
from nearsocket.model.snapshot import Snapshot


@dataclass(frozen=True)
class TopoRow:
    """A GPU's row in `nvidia-smi topo -m`: its index, node text and CPU list (None where the table says N/A)."""

    index: int
    node: Optional[str]
    cpus: Optional[str]


def information(snapshot: Snapshot) -> Mapping[str, GpuInformation]:
    """PCI address to what /proc/driver/nvidia/gpus says."""
    found: dict[str, GpuInformation] = {}
    for path, text in take.text_map(snapshot.data("driver.files")).items():
        parts = path.split("/")
        at = pci.address(parts[1]) if len(parts) == 3 and parts[0] == "gpus" and parts[2] == "information" else None
        if at is not None:
            found[at] = nvidia_proc.information(text)
    return found


def gpus(
    snapshot: Snapshot, entries: Mapping[str, PciEntry], rows: Sequence[TopoRow], nodes: Sequence[Node], notes: Notes
) -> tuple[Gpu, ...]:
    """All GPUs by address, those that are handed to virtual machines too (their driver says so)."""
    told = _nvml(snapshot, notes)
    files = information(snapshot)
    found = {at for at, entry in entries.items() if entry.is_gpu} | set(told) | set(files)
    found = {at for at in found if at in told or not _virtual(at, entries)}
    by_address = _rows_by_address(rows, told, found, entries)
    return tuple(_gpu(at, entries, told.get(at, {}), files.get(at), by_address.get(at), nodes, notes) for at in sorted(found))


def _nvml(snapshot: Snapshot, notes: Notes) -> Mapping[str, Mapping[str, Any]]:
    """Address to NVML's entry; MIG instances are part of their GPU and no GPU of their own."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in take.maps(take.mapping(snapshot.data("nvml")).get("gpus")):
        at = pci.address(take.word(entry.get("pci")))
        if at is None:
            notes.add("nvml", f"a GPU without a readable PCI address ({quoted(entry.get('pci'))}), left out")
        elif not take.word(entry.get("uuid")).startswith("MIG-"):
            found.setdefault(at, entry)
    return found


def _virtual(at: str, entries: Mapping[str, PciEntry]) -> bool:
    """Whether this is a virtual function: sysfs says so, or it shares its bus with a GPU at 00.0 (a PCIe bus has one device)."""
    entry = entries.get(at)
    physical = entries.get(at[:-4] + "00.0")
    if entry is None:
        return False
    return entry.virtual or (not at.endswith(":00.0") and physical is not None and physical.is_gpu)


def _rows_by_address(
    rows: Sequence[TopoRow], told: Mapping[str, Mapping[str, Any]], found: set[str], entries: Mapping[str, PciEntry]
) -> Mapping[str, TopoRow]:
    """The table numbers GPUs as NVML does. Without NVML, by PCI order (nvidia-smi's own), if the counts agree."""
    if told:
        numbers = {take.number(entry.get("index")): at for at, entry in told.items()}
        return {numbers[row.index]: row for row in rows if row.index in numbers}
    held = sorted(at for at in found if at not in entries or entries[at].driver == "nvidia")
    return dict(zip(held, sorted(rows, key=lambda row: row.index))) if len(held) == len(rows) else {}


def _gpu(
    at: str,
    entries: Mapping[str, PciEntry],
    told: Mapping[str, Any],
    file: Optional[GpuInformation],
    row: Optional[TopoRow],
    nodes: Sequence[Node],
    notes: Notes,
) -> Gpu:
    entry = entries.get(at)
    said = [*devices.sysfs_claims(entry, nodes), *_nvml_claims(told, nodes), *_row_claims(row, nodes)]
    place = claims.agree(f"GPU {at}", said, nodes, notes)
    memory = take.mapping(told.get("memory"))
    return Gpu(
        pci=at,
        name=take.text(told.get("name")) or (file.model if file else None) or (devices.title(entry) if entry else "GPU"),
        node=place.node,
        socket=place.socket,
        claims=tuple(said),
        link=_link(entry, told),
        bridges=entry.path if entry else (),
        bridge_links=devices.bridge_links(entry, entries),
        root=entry.root if entry else "",
        driver=entry.driver if entry else None,
        index=take.number(told.get("index")),
        uuid=take.text(told.get("uuid")) or (file.uuid if file else None),
        cpus=take.cpus(told.get("cpus")) or (take.cpus(entry.local_cpus) if entry else None) or frozenset(),
        memory_bytes=take.number(memory.get("total_bytes")),
        memory_used_bytes=take.number(memory.get("used_bytes")),
        persistence=take.flag(told.get("persistence")),
        ecc_uncorrected=take.number(take.mapping(told.get("ecc")).get("uncorrected")),
        throttle=take.texts(told.get("throttle")),
        links=_by_address(told.get("links")),
        p2p=_by_address(told.get("p2p")),
        nvlinks_active=take.number(told.get("nvlinks_active")),
    )


def _nvml_claims(told: Mapping[str, Any], nodes: Sequence[Node]) -> tuple[NodeClaim, ...]:
    """NVML's words: its CPU list, which shows when it spans nodes, and the node's number where that says something else."""
    if not told:
        return ()
    cpus, number = take.text(told.get("cpus")), take.number(told.get("numa_node"))
    if cpus is None:
        return (claims.by_number("nvml", "N/A" if number is None else str(number), nodes),)
    listed = claims.by_cpus("nvml", cpus, nodes)
    if number is None or listed.node == number:
        return (listed,)
    return (listed, claims.by_number("nvml memory affinity", str(number), nodes))


def _row_claims(row: Optional[TopoRow], nodes: Sequence[Node]) -> tuple[NodeClaim, ...]:
    if row is None:
        return ()
    if row.node is None and row.cpus is not None:
        return (claims.by_cpus("nvidia-smi topo", row.cpus, nodes),)
    return (claims.by_number("nvidia-smi topo", row.node or "N/A", nodes),)


def _link(entry: Optional[PciEntry], told: Mapping[str, Any]) -> PciLink:
    """sysfs's link; what it does not say is filled from NVML's generation and width."""
    known = entry.link if entry else devices.NO_LINK
    pcie = take.mapping(told.get("pcie"))
    return PciLink(
        known.speed_gts or pci.generation(pcie.get("gen")),
        known.width or take.number(pcie.get("width"), 1),
        known.max_speed_gts or pci.generation(pcie.get("max_gen")),
        known.max_width or take.number(pcie.get("max_width"), 1),
    )


def _by_address(value: Any) -> Mapping[str, str]:
    found = ((pci.address(key), text) for key, text in take.text_map(value).items())
    return {key: text for key, text in found if key is not None}
