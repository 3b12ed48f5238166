"""The drawing of a host as SVG: a box for each socket, what lies in it, and a thread from each far buffer to its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nearsocket.model import cpulist
from nearsocket.model.host import Host
from nearsocket.report import parts
from nearsocket.report.html import box, threads
from nearsocket.report.html.box import PAD, Box
from nearsocket.report.html.canvas import Canvas, fitted
from nearsocket.report.html.lanes import Lane, Place, lanes
from nearsocket.report.text import size

MARGIN, TOP, ROW_GAP = 2.0, 8.0, 28.0


@dataclass(frozen=True)
class Shape:
    """Boxes side by side, how wide each is, and what is free between them, or beside them where they stand in one column."""

    across: int
    box_width: float
    gap: float


WIDE, NARROW = Shape(2, 466, 96), Shape(1, 372, 40)


@dataclass(frozen=True)
class Figure:
    """An SVG of `width` x `height` pixels, and the same in words, a sentence a line."""

    width: int
    height: int
    elements: Markup
    words: tuple[str, ...]


def draw(host: Host, shape: Shape = WIDE) -> Figure | None:
    """The drawing; None where neither sockets nor GPUs could be read."""
    homes = parts.homes(host)
    if not homes:
        return None
    found = lanes(host)
    canvas, boxes, y = Canvas(), [], TOP
    for start in range(0, len(homes), shape.across):
        row = homes[start : start + shape.across]
        placed = [_place(home, found, MARGIN + at * (shape.box_width + shape.gap), y, shape) for at, home in enumerate(row)]
        placed = box.aligned(placed)
        boxes += placed
        y = max(one.bottom for one in placed) + ROW_GAP
    across = min(len(homes), shape.across)
    width = 2 * MARGIN + across * shape.box_width + (len(homes) > 1) * shape.gap
    if across == 2:
        _between(canvas, host, boxes)
    for one in boxes:
        box.draw(canvas, host, one)
    threads.draw(canvas, boxes, shape.gap)
    y = _host_wide(canvas, host, box.silent(host, boxes), y - ROW_GAP + 18, width) + ROW_GAP
    return Figure(round(width), round(y - ROW_GAP + MARGIN), canvas.markup(), tuple(_words(host, boxes)))


def _host_wide(canvas: Canvas, host: Host, silent: Sequence[str], y: float, width: float) -> float:
    """Under the boxes what has no place in one: replicas without a ring buffer, ZFS's ARC; where it ends."""
    for name in silent:
        said = f"{name}: no ring buffer in /dev/shm seen (cuMem, P2P or NVLink, or none made yet)"
        canvas.text("small", MARGIN + PAD, y, fitted(said, width - 2 * PAD, size=11.5))
        y += 18
    total = sum(node.memory.total_bytes for node in host.nodes if node.memory)
    if host.arc_bytes and total:
        said = f"ZFS ARC {size(host.arc_bytes)} of {size(total)}, within used; the kernel does not say on which node"
        canvas.rect("m-frame", MARGIN + PAD, y - 9, 160, 10, 2)
        canvas.rect("m-arc", MARGIN + PAD, y - 9, min(160 * host.arc_bytes / total, 160), 10)
        canvas.text("small", MARGIN + PAD + 172, y, fitted(said, width - 2 * PAD - 172, size=11.5))
        y += 18
    return y - 18


def _place(home: parts.Home, found: Sequence[Lane], x: float, y: float, shape: Shape) -> Box:
    ids = {node.id for node in home.nodes}
    return box.measure(home, [lane for lane in found if lane.node in ids], x, y, shape.box_width, x > MARGIN)


def _between(canvas: Canvas, host: Host, boxes: Sequence[Box]) -> None:
    """The way between two sockets, over which far bytes go, with the kernel's distance."""
    for left, right in zip(boxes[::2], boxes[1::2], strict=False):
        if left.home.socket is None or right.home.socket is None:
            continue
        y, start, end = left.y + 15, left.x + left.width, right.x
        canvas.shape("bus", f"M{start} {y - 2}H{end}M{start} {y + 2}H{end}")
        far = _distance(host, left.home, right.home)
        if far is not None:
            canvas.text("small", (start + end) / 2, y - 7, f"distance {far}", "middle")
        word = box.among(left.home.gpus, right.home.gpus)
        if word:
            canvas.text("small", (start + end) / 2, y + 16, f"GPUs: {word}", "middle")


def _distance(host: Host, one: parts.Home, other: parts.Home) -> int | None:
    """The distance from one box's first node to the other's, in the kernel's numbers (10 is the node itself)."""
    ids = [node.id for node in host.nodes]
    if not one.nodes or not other.nodes or len(one.nodes[0].distances) != len(ids):
        return None
    return one.nodes[0].distances[ids.index(other.nodes[0].id)]


def _words(host: Host, boxes: Sequence[Box]) -> list[str]:
    """The drawing for those who do not see it."""
    said = []
    for one in boxes:
        nodes = [
            f"node {node.id} with {size(node.memory.free_bytes)} free and {size(node.memory.file_bytes)} page cache "
            f"of {size(node.memory.total_bytes)}"
            if node.memory
            else f"node {node.id} without memory"
            for node in one.home.nodes
        ]
        gpus = [f"GPU {gpu.index}" if gpu.index is not None else f"GPU {gpu.pci}" for gpu in one.home.gpus]
        said.append(f"{one.home.title.capitalize()}: {', '.join([*nodes, *(gpus or ['no GPU'])])}.")
        said += [f"Node {lane.node}: {lane.name}: {lane.label}." for lane in one.lanes if lane.place is not Place.SPARE]
    said += [f"{r.name}: GPUs on socket {cpulist.render(r.sockets)}." for r in host.replicas if r.sockets]
    return said
