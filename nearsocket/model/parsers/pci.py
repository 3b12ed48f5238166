"""PCI addresses, links and devices as sysfs writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.host import PciLink
from nearsocket.model.parsers import take

NVIDIA = "0x10de"
_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])")
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?)\s*GT/s.*", re.DOTALL)
_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})
#: PCIe generation to transfer rate in GT/s (PCI Express base specifications 1 to 6), for NVML, which tells generations.
GENERATIONS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


def is_gpu(vendor: str, kind: str) -> bool:
    """Whether that is a GPU: NVIDIA's display (0x03) and accelerator (0x12) classes, and 3D controllers (0x0302) of others.

    A GPU's audio function is class 0x0403, an NVSwitch 0x0680, a board's own screen 0x0300 of another vendor.
    """
    return kind.startswith(("0x03", "0x12") if vendor == NVIDIA else "0x0302")


@dataclass(frozen=True)
class PciEntry:
    """A device of the `pci` source. `numa_node` is the text in sysfs (`-1` too), None where the file is missing.

    `path`: the bridges from the root down to the device, without it. `virtual`: a virtual function, where told.
    """

    address: str
    vendor: str
    device: str
    kind: str
    numa_node: Optional[str]
    local_cpus: Optional[str]
    link: PciLink
    driver: Optional[str]
    interfaces: tuple[str, ...]
    path: tuple[str, ...]
    root: str
    virtual: bool

    @property
    def is_gpu(self) -> bool:
        """As the function of that name says."""
        return is_gpu(self.vendor, self.kind)

    @property
    def is_nic(self) -> bool:
        """Network controllers (0x02)."""
        return self.kind.startswith("0x02")


def address(text: str) -> Optional[str]:
    """The address as sysfs writes it: `00000000:3D:00.0` (NVML) and `3d:00.0` are `0000:3d:00.0`; None for another text."""
    match = _ADDRESS.fullmatch(text.strip().lower())
    if not match:
        return None
    return f"{int(match[1] or '0', 16):04x}:{int(match[2], 16):02x}:{int(match[3], 16):02x}.{match[4]}"


def speed(text: str) -> Optional[float]:
    """GT/s of `32.0 GT/s PCIe`; None for `Unknown` and anything else."""
    match = _SPEED.fullmatch(text.strip())
    return float(match[1]) if match else None


def width(text: str) -> Optional[int]:
    """Lanes of `16` or `x16`; None for 0, 63 and 255, which sysfs shows where there is no link."""
    number = take.number(text.strip().lstrip("x"))
    return number if number in _WIDTHS else None


def generation(number: Any) -> Optional[float]:
    """GT/s of a PCIe generation from 1 to 6."""
    return GENERATIONS.get(take.number(number) or 0)


def entries(data: Any) -> Mapping[str, PciEntry]:
    """The devices by address in ascending order; members without a readable address are left out."""
    found: dict[str, PciEntry] = {}
    for key, value in take.mapping(data).items():
        at = address(key)
        if at is not None and isinstance(value, dict):
            found[at] = _entry(at, value)
    return dict(sorted(found.items()))


def _entry(at: str, value: Mapping[str, Any]) -> PciEntry:
    path = (address(item) for item in take.texts(value.get("path")))
    return PciEntry(
        address=at,
        vendor=take.word(value.get("vendor")).lower(),
        device=take.word(value.get("device")).lower(),
        kind=take.word(value.get("class")).lower(),
        numa_node=take.text(value.get("numa_node")),
        local_cpus=take.text(value.get("local_cpulist")),
        link=PciLink(
            speed(take.word(value.get("current_link_speed"))),
            width(take.word(value.get("current_link_width"))),
            speed(take.word(value.get("max_link_speed"))),
            width(take.word(value.get("max_link_width"))),
        ),
        driver=take.text(value.get("driver")),
        interfaces=take.texts(value.get("net")),
        path=tuple(item for item in path if item is not None),
        root=take.word(value.get("root")),
        virtual=bool(value.get("physfn")),
    )
