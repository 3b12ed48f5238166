"""Installed packages, held packages and loaded modules: one name a line each."""

from __future__ import annotations

import re

from nearsocket.model.host import Package

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_ARCH = re.compile(r":[a-z][a-z0-9-]*\Z")
#: `nvidia-driver-3:580.95.05-1.el9.*` (dnf and yum versionlock): name, epoch, version, release.
_LOCK = re.compile(r"!?(.+?)-(?:[0-9]+:)?[0-9][^-\s]*-[^-\s]+")
_LOCK_SIGN = re.compile(r"-[0-9]+:|\.\*\Z|\.(?:x86_64|aarch64|noarch)\Z")


def packages(text: str, kept: str = "") -> tuple[Package, ...]:
    """The packages of lines `NAME<TAB>VERSION<TAB>STATUS`; an architecture after the name (`:amd64`) is dropped, but `kept`."""
    found: list[Package] = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) >= 2 and fields[0]:
            found.append(Package(_name(fields[0], kept), fields[1], fields[2] if len(fields) > 2 else ""))
    return tuple(found)


def _name(text: str, kept: str) -> str:
    return text if kept and text.endswith(kept) else _ARCH.sub("", text)


def holds(text: str, kept: str = "") -> frozenset[str]:
    """The names that are held back: of `apt-mark showhold`, or of versionlock's list in its old and its dnf5 form. An architecture
    is dropped, but `kept`."""
    found: set[str] = set()
    for line in text.splitlines():
        entry = line.strip().removeprefix("Package name:").strip()
        lock = _LOCK.fullmatch(entry) if _LOCK_SIGN.search(entry) else None
        name = lock[1] if lock else _name(entry, kept)
        if _NAME.fullmatch(name.removesuffix(kept)):
            found.add(name)
    return frozenset(found)


def modules(text: str) -> frozenset[str]:
    """The loaded modules of /proc/modules."""
    return frozenset(line.split()[0] for line in text.splitlines() if line.strip())
