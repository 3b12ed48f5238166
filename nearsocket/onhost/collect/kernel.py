"""The kernel and its settings, the distribution, memory, mounts, ZFS and tuned."""

from __future__ import annotations

import os
import re

from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect import modulefile, redact
from nearsocket.onhost.collect.files import Context, absent, ok, ok_text, read_files, read_source, read_text, text_or_none

SYSCTLS = (
    "vm/zone_reclaim_mode",
    "vm/min_free_kbytes",
    "vm/swappiness",
    "vm/nr_hugepages",
    "vm/overcommit_memory",
    "vm/dirty_ratio",
    "kernel/numa_balancing",
    "kernel/sched_autogroup_enabled",
    "kernel/osrelease",
    "kernel/hostname",
)
MM = ("transparent_hugepage/enabled", "transparent_hugepage/defrag", "transparent_hugepage/shmem_enabled", "lru_gen/enabled")


def release(_context: Context) -> Source:
    """`uname -r`."""
    return ok_text(os.uname().release)


def cmdline(context: Context) -> Source:
    """The kernel's command line."""
    return ok_text(redact.text(read_text(context.path("/proc/cmdline"))))


def sysctl(context: Context) -> Source:
    """The settings under /proc/sys that matter here."""
    return read_files(context.path("/proc/sys"), SYSCTLS)


def mm(context: Context) -> Source:
    """Huge page and reclaim settings."""
    return read_files(context.path("/sys/kernel/mm"), MM)


def modules(context: Context) -> Source:
    """The loaded modules."""
    return read_source(context.path("/proc/modules"))


def images(context: Context) -> Source:
    """Installed kernels, their NVIDIA modules, and the one that the next boot takes where that can be told."""
    installed: list[str] = []
    modules_of: dict[str, list[str]] = {}
    base = context.path("/lib/modules")
    if not base.is_dir():
        return absent(f"no folder {base}")
    for folder in sorted(base.iterdir()):
        name = folder.name
        if not (
            context.path(f"/boot/vmlinuz-{name}").exists() or (folder / "vmlinuz").exists() or (folder / "modules.dep").exists()
        ):
            continue
        installed.append(name)
        modules_of[name] = _nvidia_modules(context, name)
    return ok({"installed": installed, "nvidia_module": modules_of, "default": _default(context, installed)})


def _nvidia_modules(context: Context, kernel: str) -> list[str]:
    # modules.dep lists what depmod found; the usual folders catch a module that depmod has not seen yet.
    folder = context.path(f"/lib/modules/{kernel}")
    named = re.findall(r"^(\S*/nvidia\S*?):", text_or_none(folder / "modules.dep", 8 << 20) or "", re.MULTILINE)
    found = {f"/lib/modules/{kernel}/{name}" for name in named}
    for pattern in ("updates", "extra", "kernel/drivers/video", "kernel/nvidia*"):
        found.update("/" + str(path.relative_to(context.root)) for path in folder.glob(f"{pattern}/**/nvidia*.ko*"))
    return sorted(path for path in found if modulefile.is_module_file(path.rpartition("/")[2]))


def _default(context: Context, installed: list[str]) -> str | None:
    """The kernel of the next boot: grub's saved entry, else what the link /boot/vmlinuz or /vmlinuz names; else unknown."""
    saved = re.search(r"^saved_entry=(.+)$", _any_text(context, "/boot/grub/grubenv", "/boot/grub2/grubenv"), re.MULTILINE)
    for name in sorted(installed, key=len, reverse=True):
        if saved and name in saved[1]:
            return name
    for link in ("/boot/vmlinuz", "/vmlinuz"):
        try:
            target = str(context.path(link).readlink()).rpartition("vmlinuz-")[2]
        except OSError:
            continue
        if target in installed:
            return target
    return None


def _any_text(context: Context, *paths: str) -> str:
    return next((text for text in (text_or_none(context.path(path)) for path in paths) if text), "")


def os_release(context: Context) -> Source:
    """The distribution."""
    return read_source(context.path("/etc/os-release"))


def meminfo(context: Context) -> Source:
    """The host's memory."""
    return read_source(context.path("/proc/meminfo"))


def mounts(context: Context) -> Source:
    """Every mount, with its super block's options."""
    return ok_text(redact.text(read_text(context.path("/proc/self/mountinfo"), 4 << 20)))


def arcstats(context: Context) -> Source:
    """ZFS's cache."""
    return read_source(context.path("/proc/spl/kstat/zfs/arcstats"))


def tuned(context: Context) -> Source:
    """tuned's active profile and that profile's file."""
    source = read_files(context.path("/etc/tuned"), ("active_profile", "profile_mode"))
    if not source.ok:
        return source
    texts = dict(source.data)
    for profile in texts.get("active_profile", "").split()[:1]:
        for folder in ("/etc/tuned", "/etc/tuned/profiles", "/usr/lib/tuned", "/usr/lib/tuned/profiles"):
            # A name, never a path: the file is the administrator's, but it is text all the same.
            found = text_or_none(context.path(f"{folder}/{os.path.basename(profile)}/tuned.conf"), 1 << 16)  # noqa: PTH119
            if found is not None:
                texts["profile/tuned.conf"] = redact.text(found)
                break
    return ok(texts, source.reason)
