"""/proc/PID/cgroup: the control group's path, and the container and systemd service that the path names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

#: docker-ID.scope, libpod-ID.scope, cri-containerd-ID.scope, crio-ID.scope, a bare ID (cgroupfs driver), podman's
#: libpod-payload-ID (--cgroups=split); conmon's own group (libpod-conmon-ID, crio-conmon-ID) is not the container.
_CONTAINER = re.compile(r"(?:(?:docker|libpod|libpod-payload|cri-containerd|crio|nerdctl)[-:])?([0-9a-f]{64})(?:\.scope)?")
#: containerd's systemd form inside one component: `kubepods-pod1.slice:cri-containerd:ID`.
_COLON = re.compile(r".*:[a-z-]+:([0-9a-f]{64})")


@dataclass(frozen=True)
class Cgroup:
    """`path` below the root; `container` is the 64-digit id, `unit` the nearest systemd service; None where there is none.

    A unit's `\\x2d` stays: it is part of the name that systemctl knows.
    """

    path: str
    container: Optional[str]
    unit: Optional[str]


def parse(text: str) -> Cgroup:
    """The control group of these lines (`0::/path` in version 2, `N:controllers:/path` in version 1).

    On a version 1 or hybrid host systemd's own hierarchy is asked first, then any other whose path names a container.
    """
    rows: list[tuple[str, str]] = []
    for line in text.splitlines():
        parts = line.strip().split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            rows.append((parts[1], parts[2]))
    rows.sort(key=lambda row: {"name=systemd": 0, "": 1}.get(row[0], 2))
    paths = [path for _, path in rows if path != "/"]
    named = next((path for path in paths if _container(path)), None)
    first = paths[0] if paths else (rows[0][1] if rows else "")
    return Cgroup(named or first, _container(named or first), _unit(first) or _unit(named or ""))


def _container(path: str) -> Optional[str]:
    for part in reversed(path.split("/")):
        match = _CONTAINER.fullmatch(part) or _COLON.fullmatch(part)
        if match:
            return match[1]
    return None


def _unit(path: str) -> Optional[str]:
    for part in reversed(path.split("/")):
        # user@1000.service holds all that a user runs, which says nothing about one program
        if part.endswith(".service") and part != ".service" and not part.startswith("user@"):
            return part
    return None
