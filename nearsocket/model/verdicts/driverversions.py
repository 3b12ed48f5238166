"""Judges whether every place that tells the NVIDIA driver's version tells the same one."""

from __future__ import annotations

import dataclasses
import re
from typing import Optional

from nearsocket.model.driver import names
from nearsocket.model.finding import Evidence, Finding, Status, failed, passed, unknown, warned
from nearsocket.model.host import Host, Package
from nearsocket.model.verdicts import fabricmanager
from nearsocket.model.verdicts.reading import because, files, listed, refused, told, why

#: Packages whose version is the driver's own: module, user libraries, tools (Debian's, Ubuntu's and NVIDIA's names, RPM's too).
_DRIVER_PACKAGE = re.compile(
    r"(nvidia-(tesla-\d+-)?(open-)?(driver|dkms|kernel|utils|open|compute-utils)|libnvidia-(tesla-\d+-)?(compute|ml|cfg|cuda1)"
    r"|libcuda1|kmod-nvidia|cuda-drivers)"
)
_VERSION = re.compile(r"(?:\d+:)?(\d{3,}\.\d+(?:\.\d+)?)")
#: nvidia-smi's exit code where module and library differ (its manual, return value 18 of NVML: library and driver mismatch).
MISMATCH = re.compile(r"\bexit (code )?18\b|driver/library version mismatch|module and library (versions )?differ", re.IGNORECASE)
REBOOT = "sudo reboot  # after the engines are stopped: the new module loads with the new libraries"


def driver_packages(host: Host) -> tuple[Package, ...]:
    """The installed packages that carry the driver, by name; without those that a change of branch left behind."""
    installed = [(p, found) for p in host.packages if p.status[1:2] == "i" and is_driver(p.name) and (found := package_version(p))]
    left = names.replaced({p.name: found for p, found in installed})
    return tuple(sorted((p for p, _ in installed if p.name not in left), key=lambda p: p.name))


def is_driver(name: str) -> bool:
    """Whether a package of that name is of the driver's core: module, user libraries, tools."""
    return _DRIVER_PACKAGE.match(name) is not None


def package_version(package: Package) -> Optional[str]:
    """The driver's version in a package's: `1:580.95.05-0ubuntu1` is `580.95.05`; None where it is not of that form."""
    match = _VERSION.match(package.version)
    return match[1] if match else None


def judge_versions(host: Host) -> Finding:
    """Module in memory, library, NVML, module on disk, packages and nvidia-smi's own word."""
    driver = host.driver
    loaded, library = driver.module_loaded, driver.library
    disk = driver.modinfo.get(host.kernel or "")
    packages = {package.name: package_version(package) for package in driver_packages(host)}
    evidence = _evidence(host, disk, packages)
    smi = host.source("nvidia.smi")
    if not smi.ok and MISMATCH.search(smi.reason or ""):
        told_by = [*evidence, told("nvidia.smi", smi.reason)]
        return failed(
            host.name, f"nvidia-smi: module and library differ (module {loaded or '?'}, library {library or '?'})", told_by, REBOOT
        )
    if loaded is None:
        return _not_loaded(host, evidence)
    live = {"library": library, "NVML": driver.nvml}
    off = [f"{name} {version}" for name, version in live.items() if version and version != loaded]
    if off:
        summary = f"the module in memory is {loaded}, but {listed(off)}: containers that start now find no GPU"
        return failed(host.name, summary, evidence, REBOOT)
    manager = fabricmanager.judge(host, loaded)
    if manager is not None and manager.status in (Status.FAIL, Status.UNKNOWN):
        return dataclasses.replace(manager, evidence=(*evidence, *manager.evidence))
    waiting = [f"the module on disk {disk}"] if disk and disk != loaded else []
    waiting += [f"{name} {version}" for name, version in packages.items() if version != loaded]
    if waiting:
        summary = f"in memory {loaded}, but {listed(waiting)}: the next boot does not bring up what runs now"
        return warned(host.name, summary, evidence, f"dpkg -l | grep -E 'nvidia|libcuda'; {REBOOT}")
    if not any((*live.values(), disk, packages)):
        missing = "; ".join(why(host, name) for name in ("driver.libraries", "nvml", "packages"))
        summary = f"the module in memory is {loaded}, nothing else tells a version: {missing}"
        return unknown(host.name, summary, evidence, "nvidia-smi; ldconfig -p | grep libcuda")
    agreeing = ["module", *(name for name, version in live.items() if version)]
    agreeing += ["module on disk"] if disk else []
    agreeing += [f"{len(packages)} packages"] if packages else []
    if manager is not None:
        evidence += manager.evidence
        agreeing.append("fabric manager")
    return passed(host.name, f"{loaded} everywhere: {listed(agreeing)}", evidence)


def _not_loaded(host: Host, evidence: list[Evidence]) -> Finding:
    read = files(host, "driver.module") or host.modules
    if "nvidia" in host.modules or not read or refused(host, "kernel.modules"):
        shown = [*evidence, *because(host, "driver.module", "driver.files")]
        return unknown(host.name, "the version of the module in memory could not be read", shown, "cat /proc/driver/nvidia/version")
    loaded = Evidence("kernel.modules", f"no nvidia among {len(host.modules)} modules")
    return failed(
        host.name, "GPUs, but no NVIDIA module is loaded", [*evidence, loaded], "sudo modprobe nvidia; sudo dmesg | grep -i nvrm"
    )


def _evidence(host: Host, disk: Optional[str], packages: dict[str, Optional[str]]) -> list[Evidence]:
    driver = host.driver
    places = (
        ("driver.module nvidia/version", driver.module_loaded),
        ("driver.libraries", driver.library),
        ("nvml driver_version", driver.nvml),
        (f"driver.modinfo {host.kernel}", disk),
        ("packages", "\n".join(f"{name} {version}" for name, version in packages.items()) or None),
    )
    return [told(name, version) for name, version in places if version]
