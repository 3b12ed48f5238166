"""GPUs, network cards and the bridges above them, from sysfs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nearsocket.model.parsers.pci import is_gpu
from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect import children
from nearsocket.onhost.collect.files import Context, absent, ok, text_or_none

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\Z")
_TEXTS = (
    "vendor",
    "device",
    "class",
    "numa_node",
    "local_cpulist",
    "current_link_speed",
    "current_link_width",
    "max_link_speed",
    "max_link_width",
)


def pci(context: Context) -> Source:
    """The devices that matter by address. A device whose sysfs files hang is left out and named in the reason."""
    base = context.path("/sys/bus/pci/devices")
    if not base.is_dir():
        return absent(f"no folder {base}")
    folders = sorted(path for path in base.iterdir() if wanted(path))
    devices: dict[str, Any] = {}
    above: list[Path] = []
    for folder in folders:
        for bridge in bridges(folder):
            if bridge not in above:
                above.append(bridge)
    everything = [*folders, *above]
    faults = []
    for folder, result in zip(everything, children.stepwise(everything, describe, 2.0, context.within(8))):
        if result.parts:
            devices[folder.name] = result.parts
        else:
            faults.append(f"{folder.name}: {result.reason}")
    return ok(devices, "; ".join(faults)[:300] or None)


def wanted(folder: Path) -> bool:
    """Whether it is a GPU or a network card."""
    kind = text_or_none(folder / "class") or ""
    return kind.startswith("0x02") or is_gpu(text_or_none(folder / "vendor") or "", kind)


def bridges(folder: Path) -> list[Path]:
    """The folders of the bridges above a device, from the root down."""
    real = folder.resolve()
    return [parent for parent in reversed(real.parents) if _ADDRESS.match(parent.name)]


def describe(folder: Path) -> Iterator[dict[str, Any]]:
    """One device's or bridge's facts."""
    real = folder.resolve()
    facts: dict[str, Any] = {}
    for name in _TEXTS:
        value = text_or_none(real / name)
        if value is not None:
            facts[name] = value
    driver = real / "driver"
    facts["driver"] = driver.resolve().name if driver.exists() else None
    # A virtio card's interface stands below its virtio device.
    facts["net"] = sorted(path.name for pattern in ("net/*", "virtio*/net/*") for path in real.glob(pattern))
    facts["path"] = [parent.name for parent in bridges(folder)]
    facts["root"] = next((parent.name for parent in real.parents if re.match(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z", parent.name)), "")
    yield facts
