"""The GPUs that the engine may use, from the lab's one description (see lab/standins/gpu), cut down by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import memory

DESCRIPTION = "/etc/nearsocket-standin/gpus.conf"


@dataclass(frozen=True)
class Gpu:
    """One GPU for show: NVML's index, PCI address, node (-1: not known), and the node's CPUs."""

    index: int
    pci: str
    node: int
    cpus: list[int]

    @property
    def bus_id(self) -> int:
        """The address as NCCL prints it: bus, device and function as one number."""
        bus, _, rest = self.pci.split(":")[-2:][0], "", self.pci.rpartition(":")[2]
        device, _, function = rest.partition(".")
        return int(bus, 16) << 12 | int(device, 16) << 4 | int(function)


def parse(text: str) -> list[Gpu]:
    """The `gpu` lines of a description (`gpu index=0 pci=0000:21:00.0 node=0 ...`). KeyError or ValueError on a broken line."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] != ["gpu"]:
            continue
        values = dict(word.split("=", 1) for word in words[1:])
        node = int(values["node"])
        found.append(Gpu(int(values["index"]), values["pci"], node, memory.node_cpus(node)))
    return found


def visible(environ: Mapping[str, str], count: int) -> list[Gpu]:
    """The first `count` GPUs that CUDA_VISIBLE_DEVICES leaves. ValueError where there are fewer, OSError without a description."""
    everything = parse(Path(environ.get("NEARSOCKET_STANDIN_GPUS", DESCRIPTION)).read_text(encoding="utf-8"))
    # A container's runtime gives it some of the devices; without the module there are no device files at all.
    if Path("/dev/nvidiactl").exists():
        everything = [gpu for gpu in everything if Path(f"/dev/nvidia{gpu.index}").exists()]
    named = environ.get("CUDA_VISIBLE_DEVICES")
    chosen = everything
    if named is not None:
        chosen = [everything[int(word)] for word in named.split(",") if word.strip().isdigit() and int(word) < len(everything)]
    if len(chosen) < count:
        raise ValueError(f"expected {count} visible GPUs, found {len(chosen)}")
    return chosen[:count]
