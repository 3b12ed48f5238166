"""The NVIDIA driver as the kernel, its tools and its libraries tell it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import command, modulefile, redact
from nearsocket.onhost.collect.files import Context, absent, ok, read_files, text_or_none

#: Modules that claim a GPU or belong to the driver.
MODULES = ("nvidia", "nouveau", "nova_core", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "gdrdrv", "vfio_pci")
#: nvidia-smi's exit codes (its manual page, RETURN VALUE); 18 is not in older ones.
_SMI_CODES = {
    2: "an argument is invalid",
    3: "not available on this device",
    4: "no permission",
    6: "a query found nothing",
    8: "a device's external power is not attached",
    9: "the driver is not loaded",
    10: "the driver found an interrupt issue with a GPU",
    12: "the NVML library was not found or not loaded",
    13: "the library lacks a function",
    14: "the infoROM is corrupted",
    15: "a GPU fell off the bus",
    18: "module and library versions differ",
    255: "another error",
}
_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)


def topo(context: Context) -> Source:
    """`nvidia-smi topo -m`."""
    return _smi(context, "topo", "-m")


def smi(context: Context) -> Source:
    """`nvidia-smi -L`."""
    return _smi(context, "-L")


def _smi(context: Context, *args: str) -> Source:
    if not context.has_nvidia_driver:
        return absent("the NVIDIA kernel module is not loaded")
    output = command.run(["nvidia-smi", *args], 15)
    if output.code == 0:
        return Source(SourceStatus.OK, text=output.text)
    meaning = _SMI_CODES.get(output.code, "a code without a name")
    said = output.error or (output.text.strip().splitlines() or [""])[-1]
    return Source(
        SourceStatus.ERROR, text=output.text or None, reason=f"nvidia-smi: exit code {output.code} ({meaning}): {said}"[:300]
    )


def files(context: Context) -> Source:
    """/proc/driver/nvidia."""
    return read_files(context.path("/proc/driver/nvidia"), ("version", "params", "gpus/*/information"))


def module(context: Context) -> Source:
    """Which modules are there, and nvidia's version and taint."""
    base = context.path("/sys/module")
    source = read_files(base, ("nvidia/version", "nvidia/taint"))
    texts = dict(source.data or {})
    texts.update({f"{name}/.present": "" for name in MODULES if (base / name).is_dir()})
    return ok(texts) if texts else absent("none of the modules that claim a GPU is loaded")


def modinfo(context: Context) -> Source:
    """The version of the driver's module that each kernel would load: the running one and the next boot's."""
    images = context.result("kernel.images").data or {}
    releases = dict.fromkeys([os.uname().release, *([images["default"]] if images.get("default") else images.get("installed", []))])
    versions: dict[str, str | None] = {}
    for kernel in releases:
        versions[kernel] = modulefile.version(kernel, context.root, command.run, 5)
    return ok(versions)


def libraries(context: Context) -> Source:
    """The real file behind each link to the driver's user libraries."""
    links: set[Path] = set()
    try:
        output = command.run(["ldconfig", "-p"], 5)
        links.update(
            context.path(path) for path in re.findall(r"=> (\S+/(?:libcuda|libnvidia-ml)\.so\.1)$", output.text, re.MULTILINE)
        )
    except (FileNotFoundError, PermissionError, command.CommandTimeout):
        pass  # the usual places remain
    links.update(context.path(f"{folder}/{name}") for folder in _LIBRARY_FOLDERS for name in _LIBRARIES)
    found = {"/" + str(link.relative_to(context.root)): link.resolve().name for link in sorted(links) if link.exists()}
    return ok(found) if found else absent("no libcuda.so.1 or libnvidia-ml.so.1 in a library folder")


def fabricmanager(context: Context) -> Source:
    """Fabric manager's unit and version, and how many NVSwitches there are."""
    unit = "absent"
    try:
        shown = command.run(["systemctl", "show", "nvidia-fabricmanager.service", "-p", "LoadState,ActiveState"], 5).text
        state = dict(line.partition("=")[::2] for line in shown.splitlines())
        if state.get("LoadState") not in (None, "not-found"):
            unit = state.get("ActiveState", "unknown")
    except FileNotFoundError:
        pass  # no systemd, no unit
    version = None
    try:
        words = command.run(["nv-fabricmanager", "--version"], 5).text.split()
        version = words[-1] if words else None
    except (FileNotFoundError, PermissionError):
        pass  # not installed
    switches = 0
    for device in context.path("/sys/bus/pci/devices").glob("*"):
        # NVSwitch: NVIDIA's bridge class "other" (0x0680).
        switches += text_or_none(device / "vendor") == "0x10de" and (text_or_none(device / "class") or "").startswith("0x0680")
    if unit == "absent" and version is None and not switches:
        return absent("no fabric manager and no NVSwitch")
    return ok({"unit": unit, "version": version, "nvswitches": switches})


def dev_char(context: Context) -> Source:
    """NVIDIA's device files, and the links under /dev/char that point to them."""
    entries: list[dict[str, object]] = []
    folder = context.path("/dev/char")
    for link in sorted(folder.iterdir()) if folder.is_dir() else []:
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if "nvidia" in target:
            entries.append({"link": link.name, "target": target})
    for pattern in ("nvidia*", "nvidia-caps/*"):
        for path in sorted(context.path("/dev").glob(pattern)):
            facts = path.lstat()
            if stat.S_ISCHR(facts.st_mode):
                name = "/" + str(path.relative_to(context.root))
                entries.append({"path": name, "major": os.major(facts.st_rdev), "minor": os.minor(facts.st_rdev)})
    return ok(entries) if entries else absent("no NVIDIA device files")


def toolkit(context: Context) -> Source:
    """The container toolkit's version and configuration."""
    version = None
    try:
        words = re.findall(r"\d+\.\d+\.\d+\S*", command.run(["nvidia-ctk", "--version"], 5).text)
        version = words[0] if words else None
    except (FileNotFoundError, PermissionError):
        pass  # not installed
    config = text_or_none(context.path("/etc/nvidia-container-runtime/config.toml"), 1 << 16)
    if version is None and config is None:
        return absent("no nvidia-ctk and no /etc/nvidia-container-runtime/config.toml")
    return ok({"version": version, "config": None if config is None else redact.text(config)})
