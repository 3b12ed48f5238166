"""Judges the device rules that systemd holds for a running container: what it may still open after a daemon-reload.

The mechanism (nvidia-container-toolkit #48, #251, #1227, #1744): a reload writes each scope's rules anew from its DeviceAllow=.
A runtime names devices there as `/dev/char/MAJOR:MINOR`, and one that a hook injected is not among them. systemd from 240 on takes
the numbers out of such a path; an older one looks for the link of that name, and without it the line allows nothing. runc 1.1.3 to
1.1.6 left out devices without a link (runc #3671, #3842).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.containment import same_container
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import entries

_GPU = re.compile(r"/dev/nvidia\d+\Z")
#: What every CUDA program opens beside the GPU itself.
_ALWAYS = ("/dev/nvidiactl", "/dev/nvidia-uvm")
#: The systemd that reads a device's numbers out of `/dev/char/MAJOR:MINOR`.
_NUMBERS_FROM = 240


@dataclass(frozen=True)
class Rules:
    """A scope's `DevicePolicy=` and the paths and groups that it may read and write, as `systemctl show` tells them.

    `by_link`: this systemd finds a device of /dev/char by its link alone.
    """

    unit: str
    policy: str
    allow: tuple[str, ...]
    by_link: bool = False

    def __str__(self) -> str:
        """For evidence."""
        return f"DevicePolicy={self.policy}, DeviceAllow={' '.join(self.allow) or 'nothing'}"


@dataclass(frozen=True)
class Lost:
    """Devices that a reload takes: `untold` ones are not in the rules, `unlinked` ones are, by a path that does not exist."""

    untold: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()


def of(host: Host, container: Optional[str]) -> Optional[Rules]:
    """The rules of the container of that id; None where it has no scope or the scopes were not read."""
    for entry in entries(host, "containers.scopes"):
        if same_container(str(entry.get("id") or ""), container):
            lines = entry.get("allow")
            words = [str(line).split() for line in lines] if isinstance(lines, list) else []
            allowed = tuple(word[0] for word in words if word and (len(word) == 1 or {"r", "w"} <= set(word[1])))
            version = re.match(r"\d+", str(entry.get("systemd") or ""))
            by_link = version is not None and int(version[0]) < _NUMBERS_FROM
            return Rules(str(entry.get("unit") or ""), str(entry.get("policy") or ""), allowed, by_link)
    return None


def lost(host: Host, container: str, rules: Rules) -> Optional[Lost]:
    """What a daemon-reload takes from that container; None where the host's device files were not read."""
    if rules.policy == "auto" and not rules.allow:
        return Lost()
    nodes = {str(e["path"]): (str(e.get("major")), str(e.get("minor"))) for e in entries(host, "dev.char") if e.get("path")}
    gpus = sorted(path for path in nodes if _GPU.match(path))
    if not gpus:
        return None
    links = {str(e["link"]).rpartition("/")[2] for e in entries(host, "dev.char") if e.get("link")}
    told = [path for path in gpus if _told(path, nodes[path], rules)]
    held = {gpu for process in host.processes if same_container(process.container, container) for gpu in process.gpus}
    untold = [path for path in gpus if path not in told] if len(told) < max(1, len(held)) else []
    untold += [path for path in _ALWAYS if path in nodes and not _told(path, nodes[path], rules)]
    unlinked = [
        path for path in (*told, *_ALWAYS) if path in nodes and path not in untold and not _found(path, nodes[path], rules, links)
    ]
    return Lost(tuple(untold), tuple(unlinked))


def _groups(path: str, number: tuple[str, str]) -> set[str]:
    """The groups of devices that a node belongs to; they need no link."""
    names = {"char-nvidia-uvm"} if path.startswith("/dev/nvidia-uvm") else {"char-nvidia", "char-nvidia-frontend"}
    return {"char-*", f"char-{number[0]}", *names}


def _told(path: str, number: tuple[str, str], rules: Rules) -> bool:
    return bool({path, f"/dev/char/{number[0]}:{number[1]}", *_groups(path, number)} & set(rules.allow))


def _found(path: str, number: tuple[str, str], rules: Rules, links: set[str]) -> bool:
    """Whether systemd finds the device behind one of its lines."""
    if not rules.by_link or path in rules.allow or _groups(path, number) & set(rules.allow):
        return True
    return f"{number[0]}:{number[1]}" in links
