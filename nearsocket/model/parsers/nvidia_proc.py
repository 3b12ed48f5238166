"""The files under /proc/driver/nvidia: the module's version line and each GPU's `information`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.parsers import take

_VERSION = re.compile(r"NVRM version:.*?\s([0-9]{3,4}(?:\.[0-9]{1,4}){1,3})\s")


@dataclass(frozen=True)
class GpuInformation:
    """One GPU's file; None where the line is missing. `minor` is the N of its /dev/nvidiaN."""

    model: Optional[str] = None
    uuid: Optional[str] = None
    minor: Optional[int] = None


def module_version(text: str) -> Optional[str]:
    """The version in the `NVRM version:` line."""
    match = _VERSION.search(text + " ")
    return match[1] if match else None


def module_kind(text: str) -> Optional[str]:
    """`open` or `proprietary`, as the `NVRM version:` line names the module; None without such a line."""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), None)
    if line is None:
        return None
    return "open" if "Open Kernel Module" in line else "proprietary"


def information(text: str) -> GpuInformation:
    """The values of one `information` file; question marks (a GPU that was not yet initialised) count as missing."""
    rows = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in text.splitlines()) if colon}
    uuid = rows.get("GPU UUID")
    return GpuInformation(
        model=rows.get("Model") or None,
        uuid=uuid if uuid and "?" not in uuid else None,
        minor=take.number(rows.get("Device Minor")),
    )
