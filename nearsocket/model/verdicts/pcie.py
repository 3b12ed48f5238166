"""Judges a GPU's PCIe link: width and reachable speed against the GPU and against what stands above it.

The speed at a moment says nothing: an idle GPU lowers it. What counts is the width now and the speed that the link can
reach, which sysfs tells as the maximum of both ends and NVML as its own maximum for GPU and system together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.finding import Evidence, Finding, failed, passed, unknown, warned
from nearsocket.model.host import Gpu, PciLink
from nearsocket.model.parsers.pci import GENERATIONS
from nearsocket.model.verdicts.groups import quoted
from nearsocket.model.verdicts.reading import named, told

#: No PCIe link is wider; sysfs and virtual machines show 63 or 255 for "not known".
WIDEST = 32


@dataclass(frozen=True)
class Ends:
    """One link by its two ends: the port above and the device below; `upper` is None where it is not known or emulated."""

    upper: Optional[PciLink]
    lower: PciLink

    @property
    def width(self) -> Optional[int]:
        """Lanes in use now."""
        return _lanes(self.lower.width)

    @property
    def able_width(self) -> Optional[int]:
        """Lanes that both ends could use."""
        ends = [_lanes(end.max_width) for end in (self.upper, self.lower) if end]
        return min((lanes for lanes in ends if lanes), default=None)

    @property
    def able_speed(self) -> Optional[float]:
        """The rate in GT/s that both ends could use."""
        return min((end.max_speed_gts for end in (self.upper, self.lower) if end and end.max_speed_gts), default=None)


def judge_link(gpu: Gpu, nvml: Mapping[str, Any]) -> Finding:
    """One GPU's link; `nvml` is NVML's `pcie` map for it (gen, width, max_gen, max_width), empty where not read."""
    subject = named(gpu)
    own = _own(gpu, nvml)
    evidence = _evidence(gpu, nvml)
    remedy = f"sudo lspci -vvs {quoted(gpu.pci)} | grep -E 'LnkCap|LnkSta'"
    if own.width is None or not _lanes(own.lower.max_width):
        return unknown(subject, "neither sysfs nor NVML tells the link's width", evidence, remedy)
    most, able = own.lower.max_width or 0, own.able_width or 0
    if own.width < able:
        summary = f"runs x{own.width}, both ends can x{able}: a seat, riser, cable or lane is bad"
        return failed(
            subject, summary, evidence, f"{remedy}  # then reseat the card or its riser, and look at the BIOS's bifurcation"
        )
    if own.width < most:
        return warned(subject, f"an x{most} GPU in an x{able} slot", evidence, f"{remedy}  # move it to an x{most} slot")
    gen = nvml.get("max_gen")
    reach = GENERATIONS.get(gen) if isinstance(gen, int) else None
    if reach and own.able_speed and reach < own.able_speed:
        summary = f"NVML: the link reaches generation {gen} ({reach:g} GT/s) at most, both ends can {own.able_speed:g} GT/s"
        return warned(subject, summary, evidence, f"{remedy}  # look for a PCIe speed limit in the BIOS")
    for number, link in enumerate(_above(gpu)):
        if _rate(link) and _rate(own) and _rate(link) < 0.99 * _rate(own):
            at = gpu.bridges[2 * number + 1]
            share = f"{_rate(link) / _rate(own):.0%} of the GPU's own link"
            summary = f"behind a narrower bridge: {at} is connected by x{link.width}, {share}"
            return warned(subject, summary, evidence, f"sudo lspci -vvs {quoted(at)} | grep -E 'LnkCap|LnkSta'")
    slower = own.able_speed and own.lower.max_speed_gts and own.able_speed < own.lower.max_speed_gts
    limit = f" (the slot's limit, the GPU could {own.lower.max_speed_gts:g})" if slower else ""
    speed = f", up to {own.able_speed:g} GT/s{limit}" if own.able_speed else ", its speed not told"
    return passed(subject, f"x{own.width} of x{most}{speed}", evidence)


def _own(gpu: Gpu, nvml: Mapping[str, Any]) -> Ends:
    """The GPU's own link, NVML filling what sysfs does not say."""
    link = gpu.link
    if not _lanes(link.width) or not _lanes(link.max_width):
        link = PciLink(link.speed_gts, _count(nvml.get("width")), link.max_speed_gts, _count(nvml.get("max_width")))
    above = gpu.bridge_links.get(gpu.bridges[-1]) if gpu.bridges else None
    # Two ends of one link always show one width. Where they do not, the port above is a hypervisor's invention.
    real = above is not None and _lanes(above.width) is not None and _lanes(above.width) == _lanes(link.width)
    return Ends(above if real else None, link)


def _above(gpu: Gpu) -> list[Ends]:
    """The links above the GPU's port, from the root down: each a root or downstream port and the switch's upstream port.

    Empty where the chain does not pair up (root, upstream, downstream, GPU) or an end is emulated.
    """
    if len(gpu.bridges) % 2 == 0:
        return []
    found = []
    for upper, lower in zip(gpu.bridges[:-1:2], gpu.bridges[1::2]):
        high, low = gpu.bridge_links.get(upper, PciLink()), gpu.bridge_links.get(lower, PciLink())
        if not _lanes(low.width) or _lanes(high.width) != _lanes(low.width):
            return []
        found.append(Ends(high, low))
    return found


def _rate(ends: Ends) -> float:
    """Lanes in use times the reachable rate; 0 where one is not known."""
    return (ends.width or 0) * (ends.able_speed or 0.0)


def _lanes(width: Optional[int]) -> Optional[int]:
    return width if width and 0 < width <= WIDEST else None


def _count(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _evidence(gpu: Gpu, nvml: Mapping[str, Any]) -> tuple[Evidence, ...]:
    shown = [told(f"pci {gpu.pci}", _told(gpu.link))]
    shown += [told(f"pci {bridge}", _told(gpu.bridge_links[bridge])) for bridge in gpu.bridges if bridge in gpu.bridge_links]
    if nvml:
        shown.append(told("nvml pcie", ", ".join(f"{key} {nvml[key]}" for key in sorted(nvml))))
    return tuple(shown)


def _told(link: PciLink) -> str:
    def one(speed: Optional[float], width: Optional[int]) -> str:
        return f"{'?' if speed is None else f'{speed:g}'} GT/s x{'?' if width is None else width}"

    return f"now {one(link.speed_gts, link.width)}, at most {one(link.max_speed_gts, link.max_width)}"
