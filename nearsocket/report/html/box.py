"""One socket's box: its nodes with a bar of memory and lanes of buffers, then its GPUs; measured first, drawn when aligned."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from nearsocket.model import cpulist
from nearsocket.model.host import Gpu, Host, Node, NodeMemory
from nearsocket.report import parts, placement
from nearsocket.report.html import dots
from nearsocket.report.html.canvas import Canvas, fitted, width_of
from nearsocket.report.html.lanes import Lane, Place
from nearsocket.report.text import GIB, MIB

PAD, HEAD, LANE, GPU, CLAIM = 26.0, 34.0, 22.0, 30.0, 18.0
_NODE_HEAD, _BAR, _FIGURES, _NODE_GAP, _GPU_GAP = 16.0, 14.0, 18.0, 18.0, 16.0
_SMALL, _AMONG = 11.5, 14.0


@dataclass(frozen=True)
class Box:
    """A box and where its parts stand. `lane_y` and `gpu_y` are the middles of lanes and GPUs.

    `right`: it is the right one of two, so that its neighbour is to the left.
    """

    home: parts.Home
    lanes: tuple[Lane, ...]
    x: float
    y: float
    width: float
    right: bool
    node_y: tuple[float, ...]
    lane_y: tuple[float, ...]
    gpus_at: float
    gpu_y: tuple[float, ...]
    bottom: float

    @property
    def left_edge(self) -> float:
        """Where texts and bars begin."""
        return self.x + PAD

    @property
    def right_edge(self) -> float:
        """Where they end."""
        return self.x + self.width - PAD

    @property
    def inner(self) -> float:
        """The frame towards the neighbour."""
        return self.x if self.right else self.x + self.width

    @property
    def inward(self) -> int:
        """The direction from the frame towards the neighbour into the box."""
        return 1 if self.right else -1


def measure(home: parts.Home, found: Sequence[Lane], x: float, y: float, width: float, right: bool) -> Box:
    """The box at that place, as high as it needs to be."""
    node_y, lane_y, ordered = [], [], []
    at = y + HEAD
    for node in home.nodes:
        node_y.append(at)
        at += _NODE_HEAD + (_BAR + _FIGURES + 6 if _has_memory(node) else _FIGURES)
        for lane in found:
            if lane.node == node.id:
                lane_y.append(at + LANE / 2)
                ordered.append(lane)
                at += LANE
        at += _NODE_GAP
    box = Box(home, tuple(ordered), x, y, width, right, tuple(node_y), tuple(lane_y), 0, (), 0)
    return _with_gpus(box, at)


def aligned(boxes: Sequence[Box]) -> list[Box]:
    """The boxes of one row, with their GPUs and their bottoms at the same height."""
    start = max(box.gpus_at for box in boxes)
    level = [_with_gpus(box, start) for box in boxes]
    bottom = max(box.bottom for box in level)
    return [dataclasses.replace(box, bottom=bottom) for box in level]


def _with_gpus(box: Box, start: float) -> Box:
    at, gpu_y = start + _GPU_GAP + (_AMONG if among(box.home.gpus) else 0), []
    for gpu in box.home.gpus:
        gpu_y.append(at + (GPU - 4) / 2)
        at += GPU + CLAIM * len(_doubts(gpu, box.home))
    bottom = at + (10 if box.home.gpus else 26)
    return dataclasses.replace(box, gpus_at=start, gpu_y=tuple(gpu_y), bottom=bottom)


def draw(canvas: Canvas, host: Host, box: Box) -> None:
    """Everything in the box but the threads."""
    canvas.rect("box", box.x, box.y, box.width, box.bottom - box.y, 8)
    canvas.text("head", box.left_edge, box.y + 22, box.home.title.capitalize())
    for node, y in zip(box.home.nodes, box.node_y, strict=True):
        _node(canvas, box, node, y)
    for lane, y in zip(box.lanes, box.lane_y, strict=True):
        _lane(canvas, box, lane, y)
    canvas.shape("rule", f"M{box.x:.0f} {box.gpus_at:.0f}H{box.x + box.width:.0f}")
    if not box.home.gpus:
        sure = all(gpu.socket is not None for gpu in host.gpus)
        canvas.text("small", box.left_edge, box.gpus_at + 24, "no GPU" if sure else "no GPU known to be here")
    elif among(box.home.gpus):
        canvas.text("small", box.left_edge, box.gpus_at + 19, f"{among(box.home.gpus)} between them")
    for gpu, y in zip(box.home.gpus, box.gpu_y, strict=True):
        _gpu(canvas, host, box, gpu, y)


def among(some: Sequence[Gpu], others: Sequence[Gpu] | None = None) -> str:
    """What `nvidia-smi topo -m` calls the way between these GPUs, or to those others, where it is one word for all; else empty."""
    said = {gpu.links[other.pci] for gpu in some for other in (some if others is None else others) if other.pci in gpu.links}
    return said.pop() if len(said) == 1 else ""


def _has_memory(node: Node) -> bool:
    return node.memory is not None and node.memory.total_bytes > 0


def _node(canvas: Canvas, box: Box, node: Node, y: float) -> None:
    name = f"Node {node.id}"
    total = _amount(node.memory.total_bytes, node.memory, True) if node.memory and _has_memory(node) else ""
    cpus = f"CPUs {cpulist.render(node.cpus)}" if node.cpus else "no CPUs"
    room = box.right_edge - box.left_edge - width_of(name) - width_of(total) - 30
    canvas.runs(box.left_edge, y + 11, ("strong", name), ("small", fitted(cpus, room, size=_SMALL)))
    if node.memory is None or not _has_memory(node):
        canvas.text("small", box.left_edge, y + 28, "no memory" if node.memoryless else "memory not read")
        return
    canvas.text("small", box.right_edge, y + 11, total, "end")
    _memory(canvas, box, node.memory, y + _NODE_HEAD + 2)


def _amount(count: int, memory: NodeMemory, unit: bool = False) -> str:
    """Bytes in whole units of the node's: GiB, or MiB for a small one."""
    of, word = (GIB, "GiB") if memory.total_bytes >= 10 * GIB else (MIB, "MiB")
    return f"{count / of:.0f} {word}" if unit else f"{count / of:.0f}"


def _memory(canvas: Canvas, box: Box, memory: NodeMemory, y: float) -> None:
    """A bar of used, shared, page cache and free memory, and the figures under it."""
    shared = min(memory.shmem_bytes, memory.file_bytes)
    shares = [
        ("used", max(memory.total_bytes - memory.free_bytes - memory.file_bytes, 0), "used"),
        ("shared", shared, "shared"),
        ("cache", memory.file_bytes - shared, "page cache"),
        ("free", memory.free_bytes, "free"),
    ]
    whole, at = box.right_edge - box.left_edge, box.left_edge
    canvas.begin("memory", ", ".join(f"{_amount(count, memory, True)} {word}" for _, count, word in shares))
    for kind, count, _ in shares:
        width = min(whole * count / memory.total_bytes, box.right_edge - at)
        canvas.rect(f"m-{kind}", at, y, width, _BAR)
        at += width
    canvas.rect("m-frame", box.left_edge, y, whole, _BAR, 2)
    canvas.end()
    at = box.left_edge
    if whole < 380:
        shares = [(kind, count, word.removeprefix("page ")) for kind, count, word in shares]
    for kind, count, word in shares:
        told = f"{_amount(count, memory)} {word}"
        canvas.rect(f"m-{kind} key", at, y + _BAR + 7, 8, 8, 1)
        canvas.text("small", at + 13, y + _BAR + 15, told)
        at += 13 + width_of(told, size=_SMALL) + 14


def _lane(canvas: Canvas, box: Box, lane: Lane, y: float) -> None:
    """Dots, then name and figures."""
    end = dots.draw(canvas, lane, box.left_edge, y)
    room = box.right_edge - end - 8
    label = fitted(lane.label, room, size=_SMALL)
    name = fitted(lane.name, room - width_of(label, size=_SMALL) - 8)
    canvas.runs(end + 8, y + 4, (f"lane {lane.place.value}", label), ("small", name))


def lane_end(lane: Lane, box: Box) -> float:
    """Where the lane's text ends."""
    start = box.left_edge + dots.width(lane) + 8
    return min(start + width_of(lane.label, size=_SMALL) + 10 + width_of(lane.name, size=_SMALL), box.right_edge)


def _gpu(canvas: Canvas, host: Host, box: Box, gpu: Gpu, y: float) -> None:
    """A GPU: its number and address, what it works for, its link."""
    top, height = y - (GPU - 4) / 2, GPU - 4
    canvas.begin("gpu", f"{gpu.name} at {gpu.pci}" + (f", {gpu.uuid}" if gpu.uuid else ""))
    canvas.rect("chip", box.left_edge, top, box.right_edge - box.left_edge, height, 4)
    canvas.text("strong", box.left_edge + 10, y + 4.5, "GPU" if gpu.index is None else f"GPU {gpu.index}")
    canvas.text("mono", box.left_edge + 62, y + 4.5, fitted(gpu.pci.removeprefix("0000:"), 80, True, _SMALL))
    end = _link(canvas, gpu, box.right_edge - 10, y + 4.5)
    canvas.text("small", box.left_edge + 128, y + 4.5, fitted(_work(host, gpu), end - box.left_edge - 140, size=_SMALL))
    for at, doubt in enumerate(_doubts(gpu, box.home)):
        said = fitted(doubt, box.right_edge - box.left_edge - 20, size=_SMALL)
        canvas.text("doubt", box.left_edge + 10, top + height + 13 + at * CLAIM, said)
    canvas.end()


def _link(canvas: Canvas, gpu: Gpu, x: float, y: float) -> float:
    """The link in words, ending at `x`; where it begins. A driver that is not NVIDIA's stands there instead."""
    if gpu.driver is not None and gpu.driver != "nvidia":
        canvas.text("doubt", x, y, fitted(gpu.driver, 110, size=_SMALL), "end")
        return x - min(width_of(gpu.driver, size=_SMALL), 110)
    words = parts.link_words(gpu.link)
    said = f"{words.generation} {words.lanes}".strip() if words else "link not read"
    canvas.text("doubt" if words and words.reduced else "small", x, y, said, "end")
    return x - width_of(said, size=_SMALL)


def _work(host: Host, gpu: Gpu) -> str:
    """The replicas and ranks that use the GPU."""
    said = []
    for replica in host.replicas:
        if gpu.pci in replica.gpus:
            ranks = placement.ranks(host, replica, frozenset({gpu.pci}))
            said.append(f"{replica.name} rank {cpulist.render(ranks)}" if ranks else replica.name)
    return ", ".join(said)


def _doubts(gpu: Gpu, home: parts.Home) -> list[str]:
    """What the sources say, where they differ or none places the GPU."""
    return parts.opinions(gpu) if len(gpu.nodes_claimed) > 1 or home.socket is None else []


def silent(host: Host, boxes: Sequence[Box]) -> list[str]:
    """The replicas without a ring buffer that is drawn, in words."""
    drawn = {lane.name for box in boxes for lane in box.lanes if lane.place is not Place.SPARE}
    return [replica.name for replica in host.replicas if replica.name not in drawn]
