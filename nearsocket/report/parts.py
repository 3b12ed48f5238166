"""What every drawing of a host shares, in text or SVG: which box things stand in, and links, claims and machines in words."""

from __future__ import annotations

from dataclasses import dataclass

from nearsocket.model import cpulist
from nearsocket.model.host import Gpu, Host, Node, PciLink
from nearsocket.model.parsers.pci import GENERATIONS

#: Transfer rate in GT/s to PCI Express generation.
_GENERATION = {speed_gts: generation for generation, speed_gts in GENERATIONS.items()}


@dataclass(frozen=True)
class Home:
    """One box: a socket, or what has none (`socket` None)."""

    socket: int | None
    nodes: tuple[Node, ...]
    gpus: tuple[Gpu, ...]

    @property
    def title(self) -> str:
        """What stands over the box."""
        return "socket not known" if self.socket is None else f"socket {self.socket}"


def homes(host: Host) -> list[Home]:
    """The boxes: each socket with its nodes and GPUs, then what no source places."""
    sockets: list[int | None] = [socket.id for socket in host.sockets]
    known = set(sockets)
    if any(node.socket not in known for node in host.nodes) or any(gpu.socket not in known for gpu in host.gpus):
        sockets.append(None)

    def home(socket: int | None) -> Home:
        def here(place: int | None) -> bool:
            return place == socket if socket is not None else place not in known

        nodes = sorted((node for node in host.nodes if here(node.socket)), key=lambda node: node.id)
        gpus = sorted((gpu for gpu in host.gpus if here(gpu.socket)), key=lambda gpu: gpu.pci)
        return Home(socket, tuple(nodes), tuple(gpus))

    return [home(socket) for socket in sockets]


@dataclass(frozen=True)
class LinkWords:
    """A PCIe link in words: `PCIe 5`, and `x16` or `x8 of x16`; `reduced` where lanes are missing."""

    generation: str
    lanes: str
    reduced: bool


def link_words(link: PciLink) -> LinkWords | None:
    """The words; fewer lanes than both ends could use are shown, a rate that drops at idle is not. None where it was not read."""
    generation = _GENERATION.get(link.max_speed_gts or link.speed_gts or 0.0)
    if link.width is None and generation is None:
        return None
    reduced = link.width is not None and link.max_width is not None and link.width < link.max_width
    lanes = "" if link.width is None else f"x{link.width}" + (f" of x{link.max_width}" if reduced else "")
    return LinkWords(f"PCIe {generation}" if generation else "PCIe", lanes, reduced)


def opinions(gpu: Gpu) -> list[str]:
    """What the sources say about the GPU's node, those of one opinion together: `node 1: sysfs, nvml`."""
    said: dict[str, list[str]] = {}
    for claim in gpu.claims:
        nodes = claim.nodes or (frozenset() if claim.node is None else frozenset({claim.node}))
        said.setdefault(f"node {cpulist.render(nodes)}" if nodes else "no node", []).append(claim.source)
    return [f"{what}: {', '.join(who)}" for what, who in said.items()] or ["nothing says its node"]


def about(host: Host) -> list[str]:
    """What the machine is, the most telling first: GPUs by name, driver, kernel."""
    names = sorted({gpu.name for gpu in host.gpus})
    number = {name: sum(gpu.name == name for gpu in host.gpus) for name in names}
    parts = [f"{number[name]}x {name.removeprefix('NVIDIA ')}" for name in names] or ["no GPU"]
    if host.driver.module_loaded:
        parts.append(f"driver {host.driver.module_loaded}")
    if host.kernel:
        parts.append(f"Linux {host.kernel}")
    return parts
