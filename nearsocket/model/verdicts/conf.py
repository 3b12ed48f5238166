"""NCCL's configuration files against the environment.

NCCL takes a variable from the process's environment, then from the file that NCCL_CONF_FILE names or else ~/.nccl.conf,
then from /etc/nccl.conf: each fills in what is not set yet (NCCL src/misc/param.cc). So the first that sets a variable wins.

A process in a container reads its container's files. The snapshot has them as /proc/PID/root/PATH, PID being any of the
container's processes; the host's own files count for a container only where they are mounted there.
"""

from __future__ import annotations

import posixpath
import re
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
_INSIDE = re.compile(r"/proc/(?P<pid>[0-9]{1,10})/(?:root(?P<path>/.*)|cwd/(?P<relative>.+))", re.DOTALL)
#: What stands in place of a file's lines (docs/snapshot.md): why it was not read, or that a named file is not there.
_UNREAD = re.compile(r"<unread: (?P<reason>.*)>", re.DOTALL)
_ABSENT = "<absent>"


@dataclass(frozen=True)
class ConfFile:
    """One file: its path and the variables that it sets, in the file's own order."""

    path: str
    settings: Mapping[str, str]

    @property
    def inner(self) -> str:
        """The path as its processes see it or name it: without /proc/PID/root or /proc/PID/cwd."""
        inside = _INSIDE.fullmatch(self.path)
        return (inside["path"] or inside["relative"]) if inside else self.path

    @property
    def pid(self) -> Optional[int]:
        """The process whose file system has it; None for the host's own."""
        inside = _INSIDE.fullmatch(self.path)
        return int(inside["pid"]) if inside else None

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
    """Every conf file of the snapshot that sets something, the systems' own last."""
    read = [parse(path, text) for path, text in _entries(host).items() if _UNREAD.fullmatch(text) is None]
    return tuple(sorted((file for file in read if file.settings), key=lambda file: (file.inner == SYSTEM_FILE, file.path)))


def _entries(host: Host) -> Mapping[str, str]:
    data = host.source("nccl.conf").data
    whole = data.items() if isinstance(data, Mapping) else ()
    return {path: text for path, text in whole if isinstance(path, str) and isinstance(text, str)}


@dataclass(frozen=True)
class Clash:
    """One variable that two places set differently, or that a file cannot set; `status` is fail where it undoes a pin."""

    status: Status
    text: str


def missing_file(host: Host, group: Group) -> Optional[Evidence]:
    """A file that the group's NCCL reads and that was not read: one that is there, or the one that NCCL_CONF_FILE names."""
    named, entries = lookup(group, "NCCL_CONF_FILE"), _entries(host)
    for path, text in sorted(entries.items()):
        unread = _UNREAD.fullmatch(text)
        if unread is not None and _reads(group, ConfFile(path, {})):
            return Evidence(brief(path), f"{brief(path)} is there and was not read: {brief(unread['reason'])}")
    if not named.value or _named_entry(host, group) is not None:
        return None
    return Evidence(named.source, f"NCCL_CONF_FILE={named.value}, which was not read")


def _named_entry(host: Host, group: Group) -> Optional[str]:
    """What the snapshot has of the file that NCCL_CONF_FILE names, as the group sees it; None where it has nothing."""
    named = lookup(group, "NCCL_CONF_FILE").value
    return next((text for path, text in _entries(host).items() if named and _seen_as(group, ConfFile(path, {})) == named), None)


def applicable(host: Host, group: Group) -> tuple[ConfFile, ...]:
    """The files that the group's NCCL reads, the winning one first, each once however many processes show it."""
    found: dict[Optional[str], ConfFile] = {}
    for file in files(host):
        if _reads(group, file):
            found.setdefault(_seen_as(group, file), file)
    return tuple(sorted(found.values(), key=lambda file: _seen_as(group, file) == SYSTEM_FILE))


def _reads(group: Group, file: ConfFile) -> bool:
    """Whether NCCL in the group's processes reads that file: the named one or else the user's own, and the system's."""
    path, named = _seen_as(group, file), lookup(group, "NCCL_CONF_FILE").value
    if path is None or path in (SYSTEM_FILE, named):
        return path is not None
    if named or not path.endswith("/" + USER_FILE):
        return False
    # Inside a container the collector looks at one home only; who the user there is, the host's numbers do not tell.
    return file.pid is not None or _contained(group) or _own(group, path)


def _seen_as(group: Group, file: ConfFile) -> Optional[str]:
    """The path by which the group's processes see the file; None where they do not."""
    if file.pid is not None:
        return file.inner if file.pid in {process.pid for process in group.processes} else None
    if not _contained(group):
        return file.path
    for source, destination, _ in group.container.mounts if group.container else ():
        bare = source.rstrip("/")
        if file.path == source or (bare and file.path.startswith(bare + "/")):
            return destination.rstrip("/") + file.path[len(bare) :]
    return None


def _contained(group: Group) -> bool:
    return group.container is not None or any(process.container for process in group.processes)


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
    if _named_entry(host, group) == _ABSENT:
        named = lookup(group, "NCCL_CONF_FILE").value
        found.append(
            Clash(Status.WARN, f"NCCL_CONF_FILE={named} names a file that is not there, and ~/{USER_FILE} is not read then")
        )
    found += [Clash(Status.WARN, text) for text in _unseen(host, group, seen)]
    return tuple(sorted(found, key=lambda clash: clash.status is not Status.FAIL))


def file_clashes(seen: tuple[ConfFile, ...]) -> tuple[Clash, ...]:
    """What conf files disagree on among themselves, and a cuMem that one turns off for every engine."""
    found = []
    for index, file in enumerate(seen):
        for name, value in file.settings.items():
            other = next((o for o in seen[:index] if o.pid == file.pid and o.settings.get(name, value) != value), None)
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
    if any(CUMEM in file.settings for file in seen):
        return []
    return [f"{file.path} sets {_pair(CUMEM, file.settings[CUMEM])}; the container does not see the host's file" for file in blind]
