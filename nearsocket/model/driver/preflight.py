"""What stands in the way of a driver upgrade, judged from what the host showed, before anything is stopped. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import holders
from nearsocket.model.driver import names as naming
from nearsocket.model.driver.family import Family
from nearsocket.model.generation import Manifest
from nearsocket.model.host import Host
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.kernels import release_key
from nearsocket.model.verdicts.reading import files, listed, mapping, refused, why

MIB = 1 << 20
#: What a package's own size is not: dpkg's lists, a journal, a log.
_SLACK_BYTES = 64 * MIB
#: A package that does not say how large it is unpacked; NVIDIA's are compressed to about a third.
_UNPACKED = 4


class Grade(str, enum.Enum):
    """`stop`: nothing is to be begun; `warn`: said, and gone on with; `ok`: looked at and well."""

    STOP = "stop"
    WARN = "warn"
    OK = "ok"


@dataclass(frozen=True)
class Look:
    """One thing that the preflight looked at: `check` names it, `text` says what was found, `hint` what to do."""

    check: str
    grade: Grade
    text: str
    hint: str = ""

    def __str__(self) -> str:
        """One line for people."""
        return one_line(f"{self.check}: {self.text}" + (f" ({self.hint})" if self.hint and self.grade is not Grade.OK else ""), 400)


def whole(family: Family, audit: str, target: str) -> tuple[Look, ...]:
    """The packages themselves: whole, one driver, and not pinned away from the target."""
    found = []
    half = [package.name for package in family.half]
    said = next((line for line in audit.splitlines() if line.strip()), "")
    if half or said:
        text = f"half installed: {listed(half)}" if half else one_line(said, 160)
        found.append(Look("packages", Grade.STOP, text, "dpkg --configure -a, then apt-get install -f"))
    if family.version is None and not family.split:
        text = "the driver did not come from packages" if not family.members else "its packages tell no version"
        found.append(Look("family", Grade.STOP, text, "a driver of NVIDIA's .run file is not upgraded here"))
    elif family.version is None:
        parts = listed(f"{package.name} {package.version}" for package in family.split[:4])
        found.append(
            Look("family", Grade.STOP, f"packages of several versions: {parts}", "apt-get install -f; dpkg -l | grep nvidia")
        )
    for pin in family.pins:
        if not f"{target}.".startswith(f"{pin.rstrip('.')}."):
            hint = f"apt-get remove nvidia-driver-pinning-{pin}, or take a version of it"
            found.append(Look("pin", Grade.STOP, f"the repository is pinned to {pin}", hint))
    return tuple(found)


def loaded(host: Host, family: Family) -> tuple[Look, ...]:
    """The packages are those of the module in memory: else the way back would lead to another driver than the one that serves."""
    mine = host.driver.module_loaded
    if mine is None or mine == family.version:
        return ()
    text = f"the module in memory is {mine}, the packages are {family.version}: what serves now could not be gone back to"
    return (Look("packages", Grade.STOP, text, f"--driver {family.version} first: it reboots and proves what is installed"),)


def next_kernel(host: Host) -> Optional[str]:
    """The kernel of the next boot: the boot loader's default, else the newest that is installed; None where none is."""
    images = mapping(host, "kernel.images")
    default = images.get("default")
    if isinstance(default, str):
        return default
    installed = [release for release in images.get("installed") or () if isinstance(release, str)]
    return max(installed, key=release_key, default=host.kernel)


def kernels(
    family: Family, releases: Sequence[str], headers: Mapping[str, bool], compiler: bool, prebuilt_for: Iterable[str] = ()
) -> tuple[Look, ...]:
    """Whether each of these kernels can get a module. `headers`: which have them; `prebuilt_for`: the built modules that will be
    there then at the new version, signatures and objects alone are none."""
    if family.dkms is None and not family.prebuilt:
        return (Look("kernels", Grade.OK, f"the module comes built, for {listed(releases)} it is looked at after the upgrade"),)
    if family.dkms is None:
        built = [name for name in prebuilt_for if naming.is_module(name)]
        without = [release for release in releases if not any(name.endswith(f"-{release}") for name in built)]
        if without:
            hint = f"apt-get install linux-modules-nvidia-...-{without[0]}, or boot another kernel"
            return (Look("kernels", Grade.STOP, f"no built module for kernel {listed(without)}", hint),)
        return (Look("kernels", Grade.OK, f"a built module for {listed(releases)}"),)
    found = []
    bare = [release for release in releases if not headers.get(release)]
    if bare:
        found.append(
            Look("kernels", Grade.STOP, f"no headers for kernel {listed(bare)}", f"apt-get install linux-headers-{bare[0]}")
        )
    if not compiler:
        found.append(
            Look("kernels", Grade.STOP, "DKMS builds the module, and dkms, make or gcc is not there", "apt-get install dkms")
        )
    return tuple(found) or (Look("kernels", Grade.OK, f"headers, DKMS and a compiler for {listed(releases)}"),)


def on_disk(goal: str, modules: Mapping[str, Optional[str]]) -> tuple[Look, ...]:
    """Whether each kernel (to its module's version) has the module of packages that are at the version already: nothing of them
    will change, and unattended upgrades take libraries along and may leave a built module behind."""
    behind = [f"{release} has {version or 'none'}" for release, version in modules.items() if version != goal]
    if not behind:
        return ()
    hint = "dkms autoinstall; or apt-get install linux-modules-nvidia-... of that kernel"
    return (Look("kernels", Grade.STOP, f"the packages are at {goal}, and the module is not: {listed(behind)}", hint),)


def secure_boot(enabled: Optional[bool], family: Family, enrolled: Optional[bool]) -> Look:
    """Whether the next module may be loaded. `enabled` None: could not be read; `enrolled`: DKMS's signing key, None: not known."""
    if enabled is False:
        return Look("secure boot", Grade.OK, "off")
    if enabled is None:
        return Look("secure boot", Grade.WARN, "not known: neither mokutil nor the EFI variables tell", "mokutil --sb-state")
    if family.dkms is None:
        return Look("secure boot", Grade.OK, "on, and the module comes built: its maker signs it")
    if enrolled:
        return Look("secure boot", Grade.OK, "on, and DKMS's key is enrolled")
    text = "on, and DKMS's key is not enrolled: the kernel will refuse the module"
    if enrolled is None:
        text = "on, and whether DKMS's key is enrolled is not known"
    return Look("secure boot", Grade.STOP, text, "mokutil --import /var/lib/dkms/mok.pub, confirmed on the console at a boot")


@dataclass(frozen=True)
class Size:
    """One package of the transaction: bytes to fetch and bytes unpacked (0: its index does not say)."""

    name: str
    archive_bytes: int
    unpacked_bytes: int


def disk(free: Mapping[str, int], sizes: Sequence[Size], initrd_bytes: int, devices: Mapping[str, int]) -> tuple[Look, ...]:
    """Whether /var, /usr and /boot have room. `free`: bytes by path; `devices`: its file system, needs on one are added up.

    Fetched: the new packages and the old ones that are kept for the way back. Unpacked: both lie there for a moment. /boot: a new
    initial RAM disk is written beside the old one.
    """
    fetched = 2 * sum(size.archive_bytes for size in sizes)
    unpacked = sum(size.unpacked_bytes or _UNPACKED * size.archive_bytes for size in sizes)
    needs = {"/var": fetched + _SLACK_BYTES, "/usr": unpacked + _SLACK_BYTES, "/boot": initrd_bytes + initrd_bytes // 8}
    groups: dict[object, list[str]] = {}
    for path in needs:
        if path in free:
            groups.setdefault(devices.get(path, path), []).append(path)
    short = []
    for paths in groups.values():
        room, need = min(free[path] for path in paths), sum(needs[path] for path in paths)
        if room < need:
            short.append(f"{', '.join(paths)}: {room // MIB} MiB free, {need // MIB + 1} MiB needed")
    if short:
        return tuple(Look("disk", Grade.STOP, text, "make room: apt-get autoremove --purge takes old kernels") for text in short)
    told = listed(f"{path} {free[path] // MIB} MiB" for path in needs if path in free)
    return (Look("disk", Grade.OK, f"free: {told}"),)


def held_gpus(host: Host, here: Optional[Manifest], disturb: bool) -> Look:
    """Whether anybody else works with a GPU: a reboot ends that."""
    if refused(host, "processes"):
        return Look("GPU holders", Grade.STOP, f"not known: {why(host, 'processes')}", "run it as root")
    found = [f"{holder} on {gpu.pci}" for gpu in host.gpus for holder in (holders.holder_of(host, gpu.pci, here),) if holder]
    if not found:
        return Look("GPU holders", Grade.OK, "none but replicas of this host's generation")
    if disturb:
        return Look("GPU holders", Grade.WARN, f"{listed(found[:3])}; it ends with the reboot, as you allowed")
    return Look("GPU holders", Grade.STOP, listed(found[:3]), "stop it, or give leave: --disturb")


def fabric(host: Host, family: Family, names: Iterable[str]) -> Look:
    """Where NVSwitches join the GPUs, fabric manager has to come to the very version of the driver in the same transaction."""
    mine, switches = family.fabric_manager, mapping(host, "fabricmanager").get("nvswitches")
    if not isinstance(switches, int) or switches < 1:
        if mine is not None and mine in family.split:
            text = f"{mine.name} is {mine.version}, the driver {family.version}; no NVSwitch needs it"
            return Look("fabric manager", Grade.WARN, text, "remove it, or install the driver's version")
        return Look("fabric manager", Grade.OK, "no NVSwitch")
    if mine is None:
        text = f"{switches} NVSwitches, and no package of fabric manager is installed"
        return Look("fabric manager", Grade.STOP, text, "apt-get install nvidia-fabricmanager of the driver's version")
    if mine in family.split:
        text = f"{switches} NVSwitches, {mine.name} is {mine.version} and the driver {family.version}: they must be one version"
        hint = naming.install_fabric_manager(mine.name, family.version) if family.version else "dpkg -l | grep nvidia"
        return Look("fabric manager", Grade.STOP, text, hint)
    there = [name for name in names if naming.is_fabric_manager(name)]
    if not there:
        return Look("fabric manager", Grade.STOP, f"{switches} NVSwitches, and fabric manager is not offered at the new version")
    return Look("fabric manager", Grade.OK, f"{there[0]} comes with the driver")


_CTK = re.compile(r"(\d+)\.(\d+)")


def toolkit(host: Host, family: Family) -> Look:
    """Whether CDI's specifications can follow the driver: one that names files of the old version has to be made anew."""
    version = mapping(host, "container.toolkit").get("version")
    bound = any(family.version and f".so.{family.version}" in text for text in files(host, "cdi").values())
    if isinstance(version, str) and _CTK.match(version):
        return Look("container toolkit", Grade.OK, f"{version}; it names the driver's files at the time")
    if bound:
        text = f"a CDI specification names files of {family.version}, and there is no nvidia-ctk to make it anew"
        return Look("container toolkit", Grade.STOP, text, "apt-get install nvidia-container-toolkit")
    return Look("container toolkit", Grade.OK, "none, and no CDI specification names a version")
