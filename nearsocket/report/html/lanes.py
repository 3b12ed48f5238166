"""What lies on a node, as lanes of its drawing: each replica's NCCL buffers, file by file, near or far."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearsocket.model import near
from nearsocket.model.host import Buffer, Host, Replica
from nearsocket.report import placement
from nearsocket.report.text import size

#: The name of the lane of buffers that no replica holds.
NOBODY = "in no replica"


class Place(enum.StrEnum):
    """Where bytes lie against the GPUs that use them. SPARE bytes are the CPUs' own and may lie anywhere."""

    NEAR = "near"
    FAR = "far"
    UNKNOWN = "unknown"
    SPARE = "spare"


@dataclass(frozen=True)
class Dot:
    """One file's bytes on one node."""

    place: Place
    title: str


@dataclass(frozen=True)
class Lane:
    """A replica's files of one place on one node. `label` is what stands behind the dots."""

    replica: Replica | None
    node: int
    place: Place
    size_bytes: int
    dots: tuple[Dot, ...]

    @property
    def name(self) -> str:
        """The replica's name."""
        return self.replica.name if self.replica else NOBODY

    @property
    def label(self) -> str:
        """Bytes, files and verdict in words."""
        files = f"{size(self.size_bytes)} in {len(self.dots)} file{'s' if len(self.dots) != 1 else ''}"
        if self.place is Place.SPARE:
            return f"{files}, CPU-only"
        return files if self.place is Place.UNKNOWN else f"{files}, {self.place.value}"


def lanes(host: Host) -> list[Lane]:
    """All lanes, by node, far first; what only CPUs use comes last."""
    owners: list[tuple[Replica | None, Sequence[Buffer]]] = [(replica, replica.buffers) for replica in host.replicas]
    owners.append((None, placement.unclaimed(host)))
    found = [lane for owner, buffers in owners for lane in _of(host, owner, buffers)]
    return sorted(found, key=lambda lane: (lane.node, _ORDER.index(lane.place)))


_ORDER = (Place.FAR, Place.NEAR, Place.UNKNOWN, Place.SPARE)
_PLACES = {True: Place.NEAR, False: Place.FAR, None: Place.UNKNOWN}


def _of(host: Host, owner: Replica | None, buffers: Iterable[Buffer]) -> list[Lane]:
    buffers = tuple(buffers)
    rings = {buffer.identity for buffer in placement.rings(buffers)}
    found: dict[tuple[int, Place], list[tuple[Buffer, int]]] = {}
    for buffer in buffers:
        nodes = near.of_buffer(host, buffer)
        for node, count in sorted(buffer.by_node.items()):
            close = None if nodes is None else node in nodes
            place = _PLACES[close] if buffer.identity in rings else Place.SPARE
            if count:
                found.setdefault((node, place), []).append((buffer, count))
    return [
        Lane(owner, node, place, sum(count for _, count in held), tuple(_dot(b, count, place) for b, count in held))
        for (node, place), held in found.items()
    ]


def _dot(buffer: Buffer, count: int, place: Place) -> Dot:
    whole = f" of {size(buffer.size_bytes)}" if buffer.size_bytes > count else ""
    what = buffer.role.value if place is Place.SPARE else f"{buffer.role.value}, {place.value}"
    return Dot(place, f"{buffer.file}: {size(count)}{whole} ({what})")
