"""What a host shows for its upgrade: itself as a snapshot tells it, kernels, headers, Secure Boot, room on the disks."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Collection, Sequence, Set
from typing import Optional

from nearsocket.model import places, read
from nearsocket.model.driver import preflight
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest
from nearsocket.model.host import Host
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import listed
from nearsocket.onhost.apply import disk, state
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect import modulefile
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.collect.runner import run_jobs
from nearsocket.onhost.collect.sources import JOBS
from nearsocket.onhost.reprovision.apt import ASK_S, Runner

#: What a preflight judges; the rest of a snapshot would only take time.
SOURCES = frozenset(
    {
        *(
            "nvml",
            "kernel.images",
            "processes",
            "nodes",
            "cpus",
            "pci",
            "kernel.release",
            "kernel.modules",
            "os.release",
            "meminfo",
        ),
        *("mounts", "containers", "driver.files", "driver.module", "driver.libraries", "driver.modinfo", "fabricmanager"),
        *("container.toolkit", "packages", "packages.holds", "dkms", "cdi", "units", "numactl", "nvidia.topo"),
    }
)
#: Which GPUs NVML names, and nothing else.
GPUS = frozenset({"nvml", "pci", "nodes", "cpus", "driver.files"})
_READ_S = 240.0
#: How long a boot is given to make what is missing behind sshd, and how often it is looked for.
SETTLE_S, PAUSE_S = 90.0, 5.0
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")


def host_now(tree: Tree, wanted: Set[str] = SOURCES) -> Host:
    """The host at this moment, as far as an upgrade looks at it; `wanted`: these sources alone."""
    jobs = [job for job in JOBS if job.name in wanted]
    sources = run_jobs(jobs, Context(tree.root), time.monotonic() + _READ_S)
    taken_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return read.host(Snapshot("this host", taken_at, None, {"uid": os.geteuid()}, {}, sources))


def manifest(tree: Tree) -> Optional[Manifest]:
    """The generation in force; None where there is none. Raises NearsocketError where it cannot be read: a deploy mends that, and
    while replicas are held it is refused."""
    number = tree.number()
    if number is None:
        return None
    try:
        return state.manifest_of(tree, number)
    except (NearsocketError, OSError) as error:
        found = error.message if isinstance(error, NearsocketError) else error.strerror or str(error)
        hint = f"rm -r {places.HOLD_STARTS} there (where it is there), deploys/site.py or deploys/rollback.py, then --resume"
        raise NearsocketError(f"generation {number}, the one in force, cannot be read: {one_line(found, 200)}", hint) from None


def names(here: Optional[Manifest]) -> tuple[str, ...]:
    """The replicas of a generation."""
    return tuple(replica.name for replica in here.replicas) if here else ()


def refuse_older_units(tree: Tree, here: Optional[Manifest], replicas: Collection[str]) -> None:
    """A unit of an older nearsocket never starts while the folder of holds is there: its condition asks for no such path.

    Raises NearsocketError where one of `replicas` has such a unit and anything is held, OSError.
    """
    if here is None or not disk.there(tree.at(places.HOLD_STARTS)):
        return
    units = {replica.unit for replica in here.replicas if replica.name in replicas}
    try:
        older = [unit for unit in waiting_units(tree, here) if unit in units]
    except NearsocketError:  # a unit that cannot be read; its start says so
        return
    if older:
        raise NearsocketError(
            f"expected units that know how to wait for an upgrade, found {listed(older)} of an older nearsocket",
            "end it with the nearsocket that began it; or there, where the driver is whole (nvidia-smi): "
            f"rm -r {places.HOLD_STARTS}, then deploys/site.py, then --resume",
        )


def kernels(host: Host) -> tuple[str, ...]:
    """The running kernel, and the next boot's where that is another one."""
    after = preflight.next_kernel(host)
    return tuple(dict.fromkeys(release for release in (host.kernel, after) if release))


def headers(tree: Tree, releases: Sequence[str]) -> dict[str, bool]:
    """Which of these kernels have their headers."""
    return {release: tree.at(f"/lib/modules/{release}/build/Makefile").exists() for release in releases}


def compiler() -> bool:
    """Whether DKMS, make and a compiler are there."""
    folders = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin"
    return all(shutil.which(name, path=folders) for name in ("dkms", "make", "gcc"))


def secure_boot(tree: Tree) -> Optional[bool]:
    """Whether Secure Boot is on; None where it cannot be known. A machine without EFI has none."""
    if not tree.at("/sys/firmware/efi").is_dir():
        return False
    try:
        return tree.at(_SECURE_BOOT).read_bytes()[-1:] == b"\x01"  # four bytes of attributes, then the value
    except OSError:
        return None


def enrolled(tree: Tree, run: Runner) -> Optional[bool]:
    """Whether the key that DKMS signs with is one that the firmware or shim trusts; None where that cannot be known."""
    key = next((path for path in _KEYS if tree.at(path).exists()), None)
    if key is None:
        return False
    try:
        said = run(["mokutil", "--test-key", str(tree.at(key))], ASK_S)
    except (OSError, CommandTimeout):
        return None
    return "is already enrolled" in said.text or "is already enrolled" in said.error


def free(tree: Tree) -> dict[str, int]:
    """Free bytes of the file systems that an upgrade writes to."""
    found = {}
    for path in ("/var", "/usr", "/boot"):
        try:
            stats = os.statvfs(tree.at(path))
        except OSError:
            continue
        found[path] = stats.f_bavail * stats.f_frsize
    return found


def devices(tree: Tree) -> dict[str, int]:
    """The file system that each of these lies on: two on one share its room."""
    found = {}
    for path in ("/var", "/usr", "/boot"):
        with contextlib.suppress(OSError):
            found[path] = tree.at(path).stat().st_dev
    return found


def initrd_bytes(tree: Tree) -> int:
    """The largest initial RAM disk in /boot: the next one will be about as large."""
    sizes = [path.stat().st_size for path in tree.at("/boot").glob("initrd.img-*") if path.is_file()]
    return max(sizes, default=0)


def modinfo(tree: Tree, release: str, run: Runner) -> Optional[str]:
    """The version of the module that a kernel would load; None where it has none."""
    try:
        return modulefile.version(release, tree.root, run, ASK_S)
    except (OSError, CommandTimeout):
        return None


def waiting_units(tree: Tree, here: Manifest) -> tuple[str, ...]:
    """Replicas' units that do not know how to wait for an upgrade. Raises OSError, NearsocketError."""
    number = tree.number()
    found = []
    for replica in here.replicas:
        path = tree.generation(number or 0) / "systemd" / replica.unit
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise NearsocketError(f"expected to read {replica.unit}, found: {error.strerror}", "run deploys/site.py") from None
        wanted = (f"|!{places.hold_file(replica.name)}", f"|{places.let_start(replica.name)}")
        if not {f"ConditionPathExists={condition}" for condition in wanted} <= set(text.splitlines()):
            found.append(replica.unit)
    return tuple(found)
