"""NCCL's configuration files against the environment.

NCCL takes a variable from the process's environment, then from the file that NCCL_CONF_FILE names or else ~/.nccl.conf,
then from /etc/nccl.conf: each fills in what is not set yet (NCCL src/misc/param.cc). So the first that sets a variable wins.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Evidence, Status
from nearsocket.model.host import Engine, Host
from nearsocket.model.text import brief
from nearsocket.model.verdicts.engine_env import CUMEM, CUMEM_HOST, lookup, plain_environ
from nearsocket.model.verdicts.groups import Group

SYSTEM_FILE = "/etc/nccl.conf"
USER_FILE = ".nccl.conf"
ROOTS_FILE = posixpath.join("/root", USER_FILE)


@dataclass(frozen=True)
class ConfFile:
    """One file: its path and the variables that it sets, in the file's own order."""

    path: str
    settings: Mapping[str, str]

    @property
    def evidence(self) -> Evidence:
        """The settings as one line."""
        text = " ".join(f"{brief(name, 60)}={brief(value, 60)}" for name, value in self.settings.items())
        return Evidence(brief(self.path), text or "sets nothing")


def parse(path: str, text: str) -> ConfFile:
    """Read `NAME=VALUE` lines. The first line of a name wins (NCCL sets without overwriting); `#` at the start is a comment."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() and not name.lstrip().startswith("#"):
            settings.setdefault(name.strip(), value.strip())
    return ConfFile(path, settings)


def files(host: Host) -> tuple[ConfFile, ...]:
    """Every conf file of the snapshot that sets something, the system's last."""
    data = host.source("nccl.conf").data
    if not isinstance(data, Mapping):
        return ()
    read = [parse(path, text) for path, text in data.items() if isinstance(path, str) and isinstance(text, str)]
    return tuple(sorted((file for file in read if file.settings), key=lambda file: (file.path == SYSTEM_FILE, file.path)))


@dataclass(frozen=True)
class Clash:
    """One variable that two places set differently, or that a file cannot set; `status` is fail where it undoes a pin."""

    status: Status
    text: str


def missing_file(host: Host, group: Group) -> Optional[Evidence]:
    """The file that NCCL_CONF_FILE names where the snapshot lacks it; None where it names none or it was read."""
    named = lookup(group, "NCCL_CONF_FILE")
    data = host.source("nccl.conf").data
    if not named.value or (isinstance(data, Mapping) and named.value in data):
        return None
    return Evidence(named.source, f"NCCL_CONF_FILE={named.value}, which was not read")


def applicable(host: Host, group: Group) -> tuple[ConfFile, ...]:
    """The files that the group's NCCL reads, the winning one first. A container sees only what is mounted into it."""
    named = lookup(group, "NCCL_CONF_FILE").value
    found = []
    for file in files(host):
        if group.container is not None or any(process.container for process in group.processes):
            mounts = group.container.mounts if group.container else ()
            if any(source == file.path or (source and file.path.startswith(source.rstrip("/") + "/")) for source, _, _ in mounts):
                found.append(file)
        elif file.path in (SYSTEM_FILE, named) or (not named and file.path.endswith("/" + USER_FILE) and _own(group, file.path)):
            found.append(file)
    return tuple(found)


def _own(group: Group, path: str) -> bool:
    """Whether a ~/.nccl.conf can be the group's: root's is root's alone, the names of others are not in the snapshot."""
    return (path == ROOTS_FILE) == any(process.uid == 0 for process in group.processes)


def clashes(host: Host, group: Group) -> tuple[Clash, ...]:
    """What the conf files and the group's environment disagree on, what undoes a pin first."""
    environ, seen = plain_environ(group), applicable(host, group)
    found = []
    for index, file in enumerate(seen):
        for name, value in file.settings.items():
            before = [(other.path, other.settings[name]) for other in seen[:index] if name in other.settings]
            if name in environ:
                before = [("the environment", environ[name]), *before]
            if before and before[0][1] != value:
                winner = f"{brief(before[0][0])} sets {brief(before[0][1], 40)}, which wins"
                found.append(Clash(Status.WARN, f"{brief(file.path)} sets {_pair(name, value)}; {winner}"))
            elif not before and name == CUMEM and group.engine is Engine.SGLANG:
                text = f"{brief(file.path)} sets {_pair(name, value)}; SGLang sets the variable first, so the file does not count"
                found.append(Clash(Status.WARN, text))
            elif not before and value == "0" and name in (CUMEM, CUMEM_HOST):
                undone = name == CUMEM_HOST and environ.get(CUMEM) == "1"
                what = f"which undoes {CUMEM}=1 of the environment" if undone else "so buffers go to /dev/shm"
                status = Status.FAIL if undone else Status.WARN
                found.append(Clash(status, f"{brief(file.path)} sets {_pair(name, value)}, {what}"))
    found += [Clash(Status.WARN, text) for text in _unseen(host, group, seen)]
    return tuple(sorted(found, key=lambda clash: clash.status is not Status.FAIL))


def file_clashes(seen: tuple[ConfFile, ...]) -> tuple[Clash, ...]:
    """What conf files disagree on among themselves, and a cuMem that one turns off for every engine."""
    found = []
    for index, file in enumerate(seen):
        for name, value in file.settings.items():
            other = next((o for o in seen[:index] if o.settings.get(name, value) != value), None)
            if other is not None:
                wins = f"{brief(other.path)} sets {brief(other.settings[name], 40)}, which wins for its user"
                found.append(Clash(Status.WARN, f"{brief(file.path)} sets {_pair(name, value)}; {wins}"))
            elif value == "0" and name in (CUMEM, CUMEM_HOST):
                found.append(Clash(Status.WARN, f"{brief(file.path)} sets {_pair(name, value)}, so buffers go to /dev/shm"))
    return tuple(found)


def _pair(name: str, value: str) -> str:
    return f"{brief(name, 60)}={brief(value, 40)}"


def _unseen(host: Host, group: Group, seen: tuple[ConfFile, ...]) -> list[str]:
    """A pin in the host's file that the container does not see."""
    if group.container is None:
        return []
    blind = [file for file in files(host) if file not in seen and file.path == SYSTEM_FILE and CUMEM in file.settings]
    return [f"{file.path} sets {_pair(CUMEM, file.settings[CUMEM])}; the container does not see the host's file" for file in blind]
