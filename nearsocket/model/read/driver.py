"""The NVIDIA driver's version as each place tells it, and the few other single facts of a host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from nearsocket.model.host import Driver
from nearsocket.model.parsers import nvidia_proc, take
from nearsocket.model.read.notes import Notes, quoted
from nearsocket.model.snapshot import Snapshot

_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.([0-9]{3,4}(?:\.[0-9]{1,4}){1,3})")
_VERSION = re.compile(r"[0-9]{3,4}(?:\.[0-9]{1,4}){1,3}")


def driver(snapshot: Snapshot, notes: Notes) -> Driver:
    """The versions of the loaded module, the user library's real file, NVML and modinfo."""
    version_file = take.word(take.mapping(snapshot.data("driver.files")).get("version"))
    loaded = take.word(take.mapping(snapshot.data("driver.module")).get("nvidia/version")).strip()
    nvml = take.mapping(snapshot.data("nvml"))
    modinfo = {
        release: text if isinstance(text, str) and text else None
        for release, text in take.mapping(snapshot.data("driver.modinfo")).items()
    }
    return Driver(
        module_loaded=_version("driver.module", loaded, notes) or nvidia_proc.module_version(version_file),
        module_kind=nvidia_proc.module_kind(version_file),
        library=_library(snapshot, notes),
        nvml=take.text(nvml.get("driver_version")),
        cuda=take.number(nvml.get("cuda_version"), 1),
        modinfo=modinfo,
    )


def _version(source: str, text: str, notes: Notes) -> Optional[str]:
    if text and not _VERSION.fullmatch(text):
        notes.add(source, f"expected a driver version such as 580.95.05, found {quoted(text)}")
        return None
    return text or None


def _library(snapshot: Snapshot, notes: Notes) -> Optional[str]:
    """libcuda's version, else libnvidia-ml's; of several the one in a 64-bit folder, and a note."""
    names = take.text_map(snapshot.data("driver.libraries"))
    for library in ("libcuda.so.", "libnvidia-ml.so."):
        versions: dict[str, list[str]] = {}
        for link, real in names.items():
            match = _LIBRARY.fullmatch(real.rpartition("/")[2])
            if match and real.rpartition("/")[2].startswith(library):
                versions.setdefault(match[1], []).append(link)
        if len(versions) > 1:
            notes.add("driver.libraries", f"{library}1 is installed in several versions: {', '.join(sorted(versions))}")
        if versions:
            return min(versions, key=lambda version: (not any("64" in link for link in versions[version]), version))
    return None


def os_id(text: str) -> Optional[str]:
    """`ID=` of /etc/os-release, quotes taken off."""
    match = re.search(r"^ID=[\"']?([A-Za-z0-9._-]{1,64})[\"']?\s*$", text, re.MULTILINE)
    return match[1] if match else None


def sysctl(files: Mapping[str, str]) -> Mapping[str, str]:
    """Files under /proc/sys as sysctl names them: `vm/swappiness` is `vm.swappiness`."""
    return {path.strip("/").replace("/", "."): text.strip() for path, text in sorted(files.items())}
