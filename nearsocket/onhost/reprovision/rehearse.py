"""What can be tried while everything still serves: the packages fetched, the way back fetched too, DKMS's module built aside."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from nearsocket.model.driver.preflight import Grade, Look
from nearsocket.model.driver.transaction import Transaction
from nearsocket.model.host import Package
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import listed
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.reprovision import apt as apts
from nearsocket.onhost.reprovision import facts, kept
from nearsocket.onhost.reprovision.apt import Apt
from nearsocket.onhost.reprovision.checks import Found

#: Building NVIDIA's module for one kernel, on a slow machine that serves beside it.
_BUILD_S = 1800.0
#: A package's whole content is hundreds of megabytes, and only whether it can be read is asked.
_SILENT = ("sh", "-c", 'exec "$@" >/dev/null', "sh")
_APT_CACHE = "/var/cache/apt/archives"
#: Which packages have DKMS's sources: Debian's and NVIDIA's, and Ubuntu's.
_WITH_SOURCES = re.compile(r".*dkms|nvidia-kernel-source-")
_SOURCES = re.compile(r"(nvidia[a-z0-9-]*?)-(\d{3,}\.\d+(?:\.\d+)?)\Z")
_FAULT = re.compile(r"^.*(?:\berror\b|Error! |No space left).*$", re.IGNORECASE | re.MULTILINE)


def rehearse(tree: Tree, apt: Apt, found: Found, to: str) -> tuple[Look, ...]:
    """Fetch and build; nothing of the system changes. Raises OSError, CommandTimeout."""
    if found.already:
        return (Look("packages", Grade.OK, f"at {found.family.version} already"),)
    for path in (kept.NEXT, kept.TRIAL):  # what an earlier rehearsal left is another version's, or half of one
        if tree.at(path).is_dir():
            disk.remove_tree(tree.at(path))
    disk.make_folders(kept.folder(tree, kept.NEXT) / "partial")
    said = apt.fetch(found.wanted.words)
    if said.code:
        return (Look("fetch", Grade.STOP, apts.problem(said), "apt-get update; look at the repository and at the room in /var"),)
    looks = [Look("fetch", Grade.OK, f"{len(list(tree.at(kept.NEXT).glob('*.deb')))} packages")]
    looks.append(_way_back(tree, apt, (*found.family.members, *found.family.prebuilt)))
    if found.family.dkms is not None:
        looks.append(_trial(tree, apt, facts.kernels(found.host), to, found.wanted))
    return tuple(looks)


def _way_back(tree: Tree, apt: Apt, members: Sequence[Package]) -> Look:
    """Keep the packages that are installed now, from apt's cache or the repository."""
    into = kept.folder(tree, kept.PREVIOUS)
    gone = [f"{package.name}={package.version}" for package in members if not _kept(tree, apt, package, into)]
    if gone:
        text = f"no way back: {listed(gone[:4])} is in no repository and not in apt's cache"
        return Look("way back", Grade.WARN, text, "keep the old packages in a repository of your own")
    return Look("way back", Grade.OK, f"{len(members)} packages of the driver before are kept")


def _kept(tree: Tree, apt: Apt, package: Package, into: Path) -> bool:
    if any(_whole(apt, archive) for archive in apts.archives(into, package.name, package.version)):
        return True
    coming = into / "partial"
    if coming.is_dir():
        disk.remove_tree(coming)
    disk.make_folders(coming)
    try:
        for archive in apts.archives(tree.at(_APT_CACHE), package.name, package.version):
            if archive.is_file() and not archive.is_symlink():
                shutil.copyfile(archive, coming / archive.name)
        if not _taken(apt, coming, package, into):
            apt.download(f"{package.name}={package.version}", str(coming))
            return _taken(apt, coming, package, into)
        return True
    finally:
        disk.remove_tree(coming)


def _taken(apt: Apt, coming: Path, package: Package, into: Path) -> bool:
    """Whether a whole archive came; it is at its place then, never half of one."""
    for archive in apts.archives(coming, package.name, package.version):
        if _whole(apt, archive):
            archive.replace(into / archive.name)
            disk.sync_folder(into)
            return True
    return False


def _whole(apt: Apt, archive: Path) -> bool:
    """Whether dpkg can read it to its end."""
    return apt.run([*_SILENT, "dpkg-deb", "--fsys-tarfile", str(archive)], apts.FETCH_S).code == 0


def _trial(tree: Tree, apt: Apt, releases: Sequence[str], to: str, wanted: Transaction) -> Look:
    """Build the new module for every kernel that may boot, in a tree of our own, at the lowest priority."""
    trial = kept.folder(tree, kept.TRIAL)
    try:
        for archive in _with_sources(tree, apt, wanted):
            apt.run(["dpkg-deb", "-x", str(archive), str(trial)], apts.FETCH_S)
        named = _sources(trial, to)
        if named is None:
            return Look("trial build", Grade.WARN, f"not tried: no package of the transaction has sources of {to} under /usr/src")
        for release in releases:
            why = _built(apt, trial, named, release)
            if why:
                text = f"the module of {named[1]} does not build for kernel {release}: {why}"
                return Look("trial build", Grade.STOP, text, "another version of the driver, or another kernel")
        return Look("trial build", Grade.OK, f"the module of {named[1]} builds for {listed(releases)}")
    finally:
        disk.remove_tree(trial)


def _with_sources(tree: Tree, apt: Apt, wanted: Transaction) -> tuple[Path, ...]:
    """The archives that may have them. A repository in a folder of this machine (NVIDIA's local one is) is used where it lies by
    `apt-get --download-only`, and copied by `apt-get download`."""
    into = tree.at(kept.NEXT)
    found: list[Path] = []
    for name, version in wanted.wanted:
        if _WITH_SOURCES.match(name):
            if not apts.archives(into, name, version):
                apt.download(f"{name}={version}", str(into))
            found += apts.archives(into, name, version)
    return tuple(found)


def _sources(trial: Path, to: str) -> Optional[tuple[str, str]]:
    """Name and version of that driver's DKMS sources there."""
    for path in sorted((trial / "usr/src").glob("*/dkms.conf")):
        match = _SOURCES.match(path.parent.name)
        if match and match[2] == to:
            return match[1], match[2]
    return None


def _built(apt: Apt, trial: Path, named: tuple[str, str], release: str) -> Optional[str]:
    """Why it does not build; None where it does."""
    name, version = named
    trees = ["--sourcetree", str(trial / "usr/src"), "--dkmstree", str(trial / "dkms")]
    (trial / "dkms").mkdir(exist_ok=True)
    joined = [*apts.JOINED, "nice", "-n", "19"]
    added = apt.run([*joined, "dkms", "add", "-m", name, "-v", version, *trees], apts.ASK_S)
    if added.code and "already" not in added.text:
        return apts.problem(added)
    built = apt.run([*joined, "dkms", "build", "-m", name, "-v", version, "-k", release, *trees], _BUILD_S)
    if built.code == 0:
        return None
    log = trial / "dkms" / name / version / "build/make.log"
    try:
        text = disk.read(log, 8 << 20).decode("utf-8", "replace")
    except OSError:
        text = ""
    line = _FAULT.search(text)
    return one_line(line[0].strip(), 200) if line else apts.problem(built)
