"""Reads raw sources of a host for checks, whatever their shape, and says why one could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

from nearsocket.model.finding import Evidence
from nearsocket.model.host import Device, Gpu, Host
from nearsocket.model.snapshot import SourceStatus
from nearsocket.model.text import brief

GIB = 1 << 30
#: Evidence is for people: more of a text than this is cut.
MOST_TEXT = 2000
_WHY = {
    SourceStatus.ABSENT: "is not there",
    SourceStatus.DENIED: "may not be read by this user",
    SourceStatus.TIMEOUT: "did not answer in time",
    SourceStatus.ERROR: "could not be read",
    SourceStatus.OK: "was read and holds nothing usable",
}


def why(host: Host, name: str) -> str:
    """Why the source of that name says nothing, such as `nvml did not answer in time (8 s)`."""
    source = host.source(name)
    if name not in host.sources:
        return f"{name} is not in this snapshot"
    return f"{name} {_WHY[source.status]}" + (f" ({brief(source.reason)})" if source.reason else "")


def refused(host: Host, name: str) -> bool:
    """Whether the source may hold something that this reading did not get: denied, out of time, broken or never asked for.

    False where it was read and where it is absent on the host, which is an answer too.
    """
    status = host.source(name).status
    return name not in host.sources or status in (SourceStatus.DENIED, SourceStatus.TIMEOUT, SourceStatus.ERROR)


def because(host: Host, *names: str) -> tuple[Evidence, ...]:
    """Evidence of why these sources say nothing, one piece each."""
    return tuple(Evidence(name, why(host, name)) for name in names)


def text(host: Host, name: str) -> str:
    """The source's text, empty where it was not read."""
    source = host.source(name)
    return source.text or "" if source.ok else ""


def mapping(host: Host, name: str) -> Mapping[str, Any]:
    """The source's data where it is a map, else an empty one."""
    source = host.source(name)
    return source.data if source.ok and isinstance(source.data, Mapping) else {}


def files(host: Host, name: str) -> dict[str, str]:
    """The texts of a source that holds files, by relative path."""
    return {path: found for path, found in mapping(host, name).items() if isinstance(found, str)}


def entries(host: Host, name: str) -> list[Mapping[str, Any]]:
    """The maps of a source that holds a list of them."""
    source = host.source(name)
    found = source.data if source.ok and isinstance(source.data, list) else []
    return [entry for entry in found if isinstance(entry, Mapping)]


def nvml_gpu(host: Host, gpu: Gpu) -> Mapping[str, Any]:
    """NVML's map of this GPU (docs/snapshot.md), empty where it was not read or does not list it."""
    found = mapping(host, "nvml").get("gpus")
    for entry in found if isinstance(found, list) else []:
        if isinstance(entry, Mapping) and entry.get("pci") == gpu.pci:
            return entry
    return {}


def told(source: str, text: Any) -> Evidence:
    """Evidence with the text as read, cut where it is long."""
    whole = str(text)
    return Evidence(source, whole if len(whole) <= MOST_TEXT else whole[:MOST_TEXT] + "<cut>")


def gib(size_bytes: Optional[float]) -> str:
    """Bytes as GiB for people, `0.8 GiB`; `?` where they are not known."""
    if size_bytes is None:
        return "?"
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes < 100 * GIB else f"{size_bytes / GIB:.0f} GiB"


def named(device: Device) -> str:
    """A device as a subject: `GPU 0 (0000:c1:00.0)`, without the number where NVML did not tell it."""
    index = getattr(device, "index", None)
    return f"GPU {device.pci}" if index is None else f"GPU {index} ({device.pci})"


def listed(words: Iterable[object]) -> str:
    """Words in a row, `none` for no word."""
    return ", ".join(str(word) for word in words) or "none"
