"""After the boot: one version everywhere, NVML answers, CDI's files are there, and what engines compiled before is cleared."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from nearsocket.model.driver import caches
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Status
from nearsocket.model.host import Host
from nearsocket.model.places import REPROVISION
from nearsocket.model.text import one_line
from nearsocket.model.verdicts import driverversions
from nearsocket.model.verdicts.reading import files, listed, mapping, refused, why
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.reprovision import apt as apts
from nearsocket.onhost.reprovision import facts
from nearsocket.onhost.reprovision.apt import Apt
from nearsocket.onhost.reprovision.sight import Eyes

_GENERATE_S = 120.0
#: A fabric manager that is starting trains NVSwitches' links: minutes.
_FABRIC_S = 600.0
_HOST_PATH = re.compile(r"[\"']?hostPath[\"']?:\s*[\"']?([^\"'\s,}]+)")
_LIBRARY = re.compile(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)\b")


def versions(host: Host, goal: str, gpus: int) -> None:
    """Raises NearsocketError where module, library or NVML are another version, or GPUs are gone."""
    found = driverversions.judge_versions(host)
    if host.driver.module_loaded != goal or found.status not in (Status.PASS,):
        loaded = host.driver.module_loaded or "none"
        said = found.summary if host.driver.module_loaded == goal else f"the module in memory is {loaded}"
        raise NearsocketError(f"expected the driver {goal} everywhere, found: {said}", "nvidia-smi; dmesg | grep -i nvrm")
    if refused(host, "nvml") or not host.source("nvml").ok:
        raise NearsocketError(f"expected NVML to answer, found: {why(host, 'nvml')}", "nvidia-smi")
    seen = sum(gpu.index is not None for gpu in host.gpus)
    if seen < gpus:
        raise NearsocketError(f"expected NVML to name {gpus} GPUs as before, found {seen}", "dmesg | grep -i -E 'nvrm|xid'")


def settled(tree: Tree, eyes: Eyes, goal: str, gpus: int) -> Host:
    """The host once all of it is the driver's: sshd answers before fabric manager runs and before NVML names every GPU.

    Nothing is waited for where another module is in memory. Raises NearsocketError as `versions` does, OSError.
    """
    began = eyes.clock()
    while True:
        host = facts.host_now(tree)
        try:
            versions(host, goal, gpus)
        except NearsocketError:
            at_work = mapping(host, "fabricmanager").get("unit") == "activating"
            limit_s = _FABRIC_S if at_work else facts.SETTLE_S
            if host.driver.module_loaded != goal or eyes.clock() + facts.PAUSE_S >= began + limit_s:
                raise
            eyes.pause(facts.PAUSE_S)
        else:
            return host


def containers(tree: Tree, apt: Apt, host: Host, goal: str) -> tuple[str, ...]:
    """CDI's specifications name files that are there, made anew where they are of another version; notes.

    Raises NearsocketError, OSError.
    """
    try:
        return _specifications(tree, apt, host, goal)
    except CommandTimeout as error:
        raise NearsocketError(f"expected nvidia-ctk to answer, found: {one_line(str(error), 200)}") from None


def _specifications(tree: Tree, apt: Apt, host: Host, goal: str) -> tuple[str, ...]:
    notes = []
    for path in sorted(path for path, text in files(host, "cdi").items() if "nvidia.com/gpu" in text):
        file = tree.at(path).resolve()  # whole, and through a link: what the collector has is cut where it is long
        text = _read(file)
        stale = {version for version in _LIBRARY.findall(text) if version != goal}
        missing = _missing(tree, text)
        if not stale and not missing:
            continue
        copy = _copied(tree, path, text)
        try:
            said = apt.run([*apts.JOINED, "nvidia-ctk", "cdi", "generate", f"--output={file}"], _GENERATE_S)
        except FileNotFoundError:
            raise NearsocketError(
                f"expected {path} to name files that are there, found {listed(missing[:2]) or listed(stale)}, and no nvidia-ctk",
                "install nvidia-container-toolkit, or make the file anew",
            ) from None
        if said.code:
            raise NearsocketError(
                f"expected nvidia-ctk to make {path} anew, found: {apts.problem(said)}", "nvidia-ctk cdi generate"
            )
        missing = _missing(tree, _read(file))
        if missing:
            raise NearsocketError(f"expected {path} to name files that are there, found none at {listed(missing[:3])}")
        notes.append(f"{path} was made anew; as it was: {copy}")
    return tuple(notes)


def _read(file: Path) -> str:
    return disk.read(file, 4 << 20).decode("utf-8", "replace")


def _copied(tree: Tree, path: str, text: str) -> str:
    """Where the file as it was is kept: somebody may have written it by hand, and nvidia-ctk writes over it. Raises OSError."""
    copy = f"{REPROVISION}/{path.strip('/').replace('/', '-')}"
    disk.make_folders(tree.at(copy).parent)
    disk.replace(tree.at(copy), text.encode("utf-8", "replace"), 0o600)
    return copy


def _missing(tree: Tree, spec: str) -> list[str]:
    """Files that a specification mounts and that are not on the host; folders in /run come and go."""
    paths = dict.fromkeys(path for path in _HOST_PATH.findall(spec) if path.startswith("/") and not path.startswith("/run/"))
    return [path for path in paths if not tree.at(path).exists()]


def clear(tree: Tree, folders: Sequence[str]) -> tuple[str, ...]:
    """Empty these folders; notes of what was cleared, and of what was not and why.

    A folder that has a link on its way stays as it is, and so does one that holds anything else than a cache. One that cannot be
    emptied is a note too: what engines compiled costs time at a start, and no driver is taken back for that.
    """
    notes = []
    for path in folders:
        if not _plain(tree, path):
            continue
        try:
            why = _not_ours(tree.at(path))
            if why:
                notes.append(one_line(f"not cleared: {path} holds {why}, which is no compiled code; clear it by hand", 300))
            elif _emptied(tree.at(path)):
                notes.append(one_line(f"cleared what was compiled in {path}", 200))
        except OSError as error:
            notes.append(one_line(f"not cleared: {path}: {error.strerror or error}; clear it by hand", 300))
    return tuple(notes)


def _not_ours(folder: Path) -> Optional[str]:
    """What lies there that no compiler made; a name. Raises OSError."""
    strange = caches.foreign(str(folder), sorted(entry.name for entry in os.scandir(folder)))
    if strange:
        return strange[0]
    for _, folders, names in os.walk(folder, onerror=_raised):
        strange = tuple(name for name in sorted((*folders, *names)) if caches.is_weights(name))
        if strange:
            return strange[0]
    return None


def _raised(error: OSError) -> None:
    raise error


def _emptied(folder: Path) -> bool:
    """Whether there was anything. Raises OSError."""
    entries = list(os.scandir(folder))
    for entry in entries:
        at = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            disk.remove_tree(at)
            continue
        at.unlink()
    return bool(entries)


def _plain(tree: Tree, path: str) -> bool:
    """Whether every part of the path is a folder and no link."""
    at: Optional[str] = ""
    for part in path.strip("/").split("/"):
        at = f"{at}/{part}"
        try:
            kind = os.lstat(tree.at(at)).st_mode
        except OSError:
            return False
        if not stat.S_ISDIR(kind):
            return False
    return True


def loaded(tree: Tree) -> Optional[str]:
    """The version of the module in memory; None where none is loaded."""
    try:
        return tree.at("/sys/module/nvidia/version").read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        return None
