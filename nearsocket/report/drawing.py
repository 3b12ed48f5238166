"""The drawing of a host: a box for each socket with nodes, memory, GPUs, replicas, and where their ring buffers lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from nearsocket.model import cpulist
from nearsocket.model.host import Buffer, Gpu, Host, Node, NodeMemory, PciLink, Replica
from nearsocket.report import parts, placement
from nearsocket.report.boxes import GAP, Boxes, Cell
from nearsocket.report.text import FAR, GIB, MIB, NEAR, QUIET, Pen, size, wrap

_BOX_MIN, _BOX_MAX = 38, 62


def draw(host: Host, pen: Pen, verbose: bool = False) -> list[Text]:
    """The drawing in lines no wider than the pen's width, two boxes side by side where there is room for them.

    `verbose` adds the files that only CPUs use.
    """
    homes = parts.homes(host)
    if not homes:
        return [Text("the sockets and nodes of this host could not be read", QUIET)]
    fitting = max(1, (pen.width + GAP) // (_BOX_MIN + GAP))
    across = min(len(homes), fitting, 4)
    width = min(_BOX_MAX, (pen.width - GAP * (across - 1)) // across)
    lines: list[Text] = []
    for start in range(0, len(homes), across):
        lines += _Row(host, Boxes(pen, width), homes[start : start + across], verbose).lines()
    return lines


def legend(pen: Pen) -> Text:
    """What the bar's characters mean."""
    glyphs = pen.glyphs
    entries = [
        Text.assemble((glyphs.used, "blue"), (" used", QUIET)),
        Text.assemble((glyphs.cache, "yellow"), (" page cache", QUIET)),
        Text.assemble((glyphs.free, QUIET), (" free", QUIET)),
        Text("ring: bytes of NCCL's ring buffers", QUIET),
    ]
    return Text("  ").join(entries)


@dataclass(frozen=True)
class _Row:
    """Boxes side by side; each section has the same height in all of them."""

    host: Host
    frame: Boxes
    homes: Sequence[parts.Home]
    verbose: bool

    @property
    def pen(self) -> Pen:
        return self.frame.pen

    def lines(self) -> list[Text]:
        drawn: list[Text] = [self.frame.edge([self._title(home) for home in self.homes], *self.pen.glyphs.corners[:2])]
        drawn += self.frame.section([[cell for node in home.nodes for cell in self._node(node)] for home in self.homes])
        if self.host.gpus:
            drawn += self.frame.section([self._gpus(home) for home in self.homes])
        for replica in self.host.replicas:
            cells = [self._replica(replica, home) for home in self.homes]
            if any(cells):
                drawn.append(self.frame.divider(self.pen.outside(replica.name, "bold"), cells))
                drawn += self.frame.section(self._thread(replica, cells))
        others = [self._others(home) for home in self.homes]
        if any(others):
            drawn.append(self.frame.divider(Text("in no replica", "bold"), others))
            drawn += self.frame.section(others)
        drawn.append(self.frame.edge([Text()] * len(self.homes), *self.pen.glyphs.corners[2:]))
        return drawn

    def _title(self, home: parts.Home) -> Text:
        return Text(home.title, "bold")

    def _node(self, node: Node) -> list[Cell]:
        cpus = f"CPUs {cpulist.render(node.cpus)}" if node.cpus else "no CPUs"
        head = Text.assemble((f"node {node.id}", "bold"), "  ", (cpus, QUIET))
        if node.memory is None or node.memory.total_bytes <= 0:
            return [Cell(head, Text()), Cell(Text("no memory" if node.memoryless else "memory not read", QUIET), Text())]
        return [Cell(head, Text(size(node.memory.total_bytes), QUIET)), self._memory(node.memory)]

    def _memory(self, memory: NodeMemory) -> Cell:
        unit = GIB if memory.total_bytes >= 10 * GIB else MIB
        digits = len(f"{memory.total_bytes / unit:.0f}")
        free_text, cache_text = (f"{count / unit:.0f}".rjust(digits) for count in (memory.free_bytes, memory.file_bytes))
        figures = Text.assemble(f"{free_text} free", "  ", (f"{cache_text} cache", "yellow"))
        bar = max(self.frame.inner - figures.cell_len - 2, 4)
        cache = min(round(bar * memory.file_bytes / memory.total_bytes), bar)
        free = min(round(bar * memory.free_bytes / memory.total_bytes), bar - cache)
        glyphs = self.pen.glyphs
        drawn = Text.assemble(
            (glyphs.used * (bar - cache - free), "blue"), (glyphs.cache * cache, "yellow"), (glyphs.free * free, QUIET)
        )
        return Cell(drawn, figures)

    def _gpus(self, home: parts.Home) -> list[Cell]:
        if not home.gpus:
            sure = all(gpu.socket is not None for gpu in self.host.gpus)
            return [Cell(Text("no GPU" if sure else "no GPU known to be here", QUIET), Text())]
        cells = []
        for gpu in home.gpus:
            name = self.pen.outside(gpu.pci.removeprefix("0000:"))
            head = Text.assemble(("GPU" if gpu.index is None else f"GPU {gpu.index}", "cyan"), "  ", name)
            foreign = gpu.driver is not None and gpu.driver != "nvidia"
            cells.append(Cell(head, self.pen.outside(gpu.driver or "", "yellow") if foreign else _link(gpu.link)))
            if len(gpu.nodes_claimed) > 1 or home.socket is None:
                cells += self._claims(gpu)
        return cells

    def _claims(self, gpu: Gpu) -> list[Cell]:
        """What the sources say about the GPU's node, those of one opinion together."""
        said = [self.pen.outside(opinion, "yellow") for opinion in parts.opinions(gpu)]
        return [Cell(Text.assemble("  ", line), Text()) for opinion in said for line in wrap(opinion, self.frame.inner - 2)]

    def _replica(self, replica: Replica, home: parts.Home) -> list[Cell]:
        cells = []
        mine = [gpu for gpu in home.gpus if gpu.pci in replica.gpus]
        if mine:
            cells.append(Cell(self._computes(replica, mine), Text()))
        shown = self._lie(replica.buffers, home)
        if shown and not mine and len(self.homes) == 1 and replica.sockets:
            where = cpulist.render(replica.sockets)
            cells.append(Cell(Text(f"its GPUs are on socket {where}", QUIET), Text()))
        if mine and not placement.rings(replica.buffers):
            cells.append(Cell(Text("no ring buffer in /dev/shm seen", QUIET), Text()))
        return cells + shown

    def _computes(self, replica: Replica, mine: Sequence[Gpu]) -> Text:
        indexes = [gpu.index for gpu in mine if gpu.index is not None]
        told = f"GPU {cpulist.render(indexes)}" if len(indexes) == len(mine) else f"{len(mine)} GPUs"
        text = Text.assemble((told, "cyan"))
        ranks = placement.ranks(self.host, replica, frozenset(gpu.pci for gpu in mine))
        if ranks:
            text.append(f"  {'rank' if len(ranks) == 1 else 'ranks'} {cpulist.render(ranks)}", QUIET)
        return text

    def _lie(self, buffers: Sequence[Buffer], home: parts.Home) -> list[Cell]:
        ids = {node.id for node in home.nodes}
        cells = []
        for share in placement.shares(self.host, placement.rings(buffers)):
            if share.node in ids:
                style, verdict = {True: (NEAR, "near"), False: (FAR, "FAR"), None: ("", "")}[share.near]
                cells.append(Cell(Text(f"ring {size(share.size_bytes)} on node {share.node}  {verdict}".rstrip(), style), Text()))
        spare = placement.totals(placement.others(buffers)) if self.verbose else {}
        for node, count in sorted(spare.items()):
            if node in ids:
                cells.append(Cell(Text(f"CPU-only {size(count)} on node {node}", QUIET), Text()))
        return cells

    def _others(self, home: parts.Home) -> list[Cell]:
        return self._lie(placement.unclaimed(self.host), home)

    def _thread(self, replica: Replica, columns: list[list[Cell]]) -> list[list[Cell]]:
        """Tie the replica's GPUs to far ring buffers in the box beside them: first line to first line."""
        far = [bool(column) and column[0].left.style == FAR for column in columns]
        home = [any(gpu.pci in replica.gpus for gpu in box.gpus) for box in self.homes]
        for left in range(len(columns) - 1):
            right, glyphs = left + 1, self.pen.glyphs
            if home[left] and far[right] and not home[right]:
                gpus, ring = columns[left][0], columns[right][0]
                columns[left][0] = Cell(Text.assemble(gpus.left, " "), Text(), gpus.enters, True)
                columns[right][0] = Cell(Text.assemble((f"{glyphs.arrow_right} ", FAR), ring.left), Text(), True)
            elif home[right] and far[left] and not home[left]:
                ring, gpus = columns[left][0], columns[right][0]
                columns[left][0] = Cell(Text.assemble(ring.left, (f" {glyphs.arrow_left}", FAR)), Text(), ring.enters, True)
                columns[right][0] = Cell(Text.assemble((glyphs.thread + " ", FAR), gpus.left), Text(), True)
        return columns


def _link(link: PciLink) -> Text:
    """A link in words, such as `PCIe 5 x16`."""
    words = parts.link_words(link)
    if words is None:
        return Text("link not read", QUIET)
    text = Text.assemble((words.generation, QUIET))
    return text.append(f" {words.lanes}", "yellow" if words.reduced else QUIET) if words.lanes else text
