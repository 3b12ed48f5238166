"""One description of a shape's GPUs: the emulator's devices and the file that all stand-ins in the guest read come from it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from lab.shapes import Shape

#: Where the guest's stand-ins find the description.
GUEST_PATH = "/etc/nearsocket-standin/gpus.conf"
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition (stand-in)"
MEMORY_MIB = 97887
#: CUDA's version as a number: a driver of the 580 series is for 13.0.
CUDA = 13000
#: Bus numbers of the GPUs' host bridges start here; each has a root port, and behind it, on the next bus, its GPU.
FIRST_BUS, BUS_STEP = 0x20, 0x20
#: nvmlGpuP2PStatus_t: cards of this kind have no P2P over PCIe between sockets; NCCL then goes through host memory.
P2P_CHIPSET_NOT_SUPPORTED = 1


@dataclass(frozen=True)
class ShownGpu:
    """One GPU for show: NVML's index, the bus of its host bridge, and its node."""

    index: int
    bus: int
    node: int

    @property
    def pci(self) -> str:
        """Its address as sysfs writes it."""
        return f"0000:{self.bus + 1:02x}:00.0"

    @property
    def uuid(self) -> str:
        """A UUID that nobody takes for a real one."""
        return f"GPU-00000000-0000-0000-0000-{self.index:012d}"


def gpus(shape: Shape) -> tuple[ShownGpu, ...]:
    """The shape's GPUs by index."""
    return tuple(ShownGpu(index, FIRST_BUS + index * BUS_STEP, node) for index, node in enumerate(shape.gpus))


def link(one: ShownGpu, other: ShownGpu) -> str:
    """nvidia-smi's word for the way between two GPUs: every GPU has a host bridge of its own."""
    return "NODE" if one.node == other.node else "SYS"


def render(shape: Shape) -> str:
    """The guest's file: one line a GPU, one a pair; underscores stand for blanks."""
    shown = gpus(shape)
    lines = [
        "# GPUs for show on a lab machine (stand-ins): read by nvidia-smi, NVML and the engine, all three stand-ins.",
        f"driver cuda={CUDA}",
    ]
    for gpu in shown:
        lines.append(
            f"gpu index={gpu.index} pci={gpu.pci} node={gpu.node} uuid={gpu.uuid} memory_mib={MEMORY_MIB} gen=5 width=16 "
            f"name={NAME.replace(' ', '_')}"
        )
    for one, other in combinations(shown, 2):
        lines.append(f"pair a={one.index} b={other.index} link={link(one, other)} p2p={P2P_CHIPSET_NOT_SUPPORTED}")
    return "\n".join(lines) + "\n"


def emulator_arguments(shape: Shape) -> list[str]:
    """The emulator's arguments: a host bridge on the GPU's node, a root port, and behind it the device that the module claims."""
    line: list[str] = []
    for gpu in gpus(shape):
        line += ["-device", f"pxb-pcie,id=host{gpu.index},bus_nr={gpu.bus},numa_node={gpu.node},bus=pcie.0"]
        line += ["-device", f"pcie-root-port,id=port{gpu.index},bus=host{gpu.index},chassis={gpu.index + 1}"]
        line += ["-device", f"edu,bus=port{gpu.index}"]
    return line
