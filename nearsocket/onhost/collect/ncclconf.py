"""NCCL's configuration files: the system's, the users' and the ones that NCCL_CONF_FILE names, in the host and in containers."""

from __future__ import annotations

import errno
import os
import posixpath
import pwd
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from nearsocket.model.snapshot import Source
from nearsocket.model.text import decode
from nearsocket.onhost.collect import children, redact
from nearsocket.onhost.collect.files import CUT, Context, absent, ok

_CAP_BYTES = 1 << 16
_SYSTEM = "/etc/nccl.conf"
#: The text of a file that NCCL_CONF_FILE names and that is not there: NCCL then takes nothing from it (src/misc/param.cc).
ABSENT = "<absent>"


@dataclass(frozen=True)
class Place:
    """Where a file may be: below `base`; `named` by NCCL_CONF_FILE, so that its absence is worth telling.

    Links are followed on the host alone. A container's owner chooses where its links point, and root would read them.
    """

    base: str
    path: str
    follow: bool = False
    named: bool = False


def unread(reason: str) -> str:
    """The text of a file that is there and could not be read."""
    return f"<unread: {reason}>"


def conf(context: Context) -> Source:
    """NCCL_ lines of every configuration file that a process which matters may read, by the name that the contract gives it."""
    found = [process for process in context.result("processes").data or [] if not process["vanished"]]
    places = {_SYSTEM: Place(str(context.root), _SYSTEM, follow=True)}
    texts: dict[str, str] = {}
    # A process's root or a home's directory service may hang: each is asked in a child.
    for process, result in zip(found, children.stepwise(found, lambda one: _places(context, one), 1.0, context.within(3, 0.5))):
        places.update({name: Place(*place) for name, place in result.parts.get("places", {}).items()})
        refused = result.reason or result.parts.get("refused")
        if refused:
            texts[f"/proc/{process['pid']}/root{_SYSTEM}"] = unread(refused)
    names = sorted(places)
    for name, result in zip(names, children.stepwise(names, lambda name: _conf(places[name]), 1.0, context.within(4))):
        text = unread(result.reason) if result.reason else result.parts.get("text")
        if text is not None:
            texts[name] = text
    faults = [f"{name}: {text[9:-1]}" for name, text in sorted(texts.items()) if text.startswith("<unread: ")]
    return ok(texts, "; ".join(faults)[:300] or None) if texts else absent("no nccl.conf")


def _places(context: Context, process: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The files of one process by name, or `refused` where this user may not look at its root; nothing where it is gone."""
    pid = process["pid"]
    base, cwd = f"/proc/{pid}/root", f"/proc/{pid}/cwd"
    try:
        on_host = _identity(f"{base}/.") == _identity("/")
    except PermissionError as error:
        yield {"refused": str(error.strerror)}
        return
    except (FileNotFoundError, ProcessLookupError):
        return
    places: dict[str, Place] = {}
    if on_host:
        home = _home(process["uid"])
        if home:
            places[f"{home}/.nccl.conf"] = Place(str(context.root), f"{home}/.nccl.conf", follow=True)
    else:
        places.update({f"{base}{path}": Place(base, path) for path in (_SYSTEM, "/root/.nccl.conf")})
    named = str((process["environ"] or {}).get("NCCL_CONF_FILE", ""))
    if named.startswith("/"):
        start = str(context.root) if on_host else base
        places[named if on_host else base + named] = Place(start, named, follow=on_host, named=True)
    elif named:
        places[f"{cwd}/{named}"] = Place(cwd, named, follow=on_host, named=True)
    yield {"places": {name: [place.base, place.path, place.follow, place.named] for name, place in places.items()}}


def _identity(path: str) -> tuple[int, int]:
    facts = Path(path).stat()
    return facts.st_dev, facts.st_ino


def _home(uid: Optional[int]) -> Optional[str]:
    try:
        return pwd.getpwuid(uid).pw_dir.rstrip("/") if uid is not None else None
    except KeyError:
        return None


def _conf(place: Place) -> Iterator[dict[str, str]]:
    """The file's NCCL_ lines, or why it could not be read; nothing where it is not there."""
    try:
        fd = _open(place)
        try:
            data = os.read(fd, _CAP_BYTES + 1)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESRCH):
            yield {"text": unread(str(error.strerror or error))}
        elif place.named:
            yield {"text": ABSENT}
        return
    lines = [redact.text(line) for line in decode(data[:_CAP_BYTES]).splitlines() if re.match(r"\s*NCCL_\w+\s*=", line)]
    yield {"text": "\n".join([*lines, *([CUT] if len(data) > _CAP_BYTES else [])])}


def _open(place: Place) -> int:
    """The file, opened for reading where it is a regular one. Raises OSError.

    It is looked at before it is opened: to open a device can do something (a watchdog, a tape), and users choose these paths.
    """
    parts = [part for part in place.path.split("/") if part not in ("", ".")]
    whole = posixpath.join(place.base, *parts)
    seen = os.open(whole, os.O_PATH | os.O_CLOEXEC) if place.follow else _walk(place.base, parts)
    try:
        if not stat.S_ISREG(os.fstat(seen).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(seen)


def _walk(base: str, parts: list[str]) -> int:
    fd = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            if part == "..":
                raise OSError(errno.ELOOP, "a path that leads upwards is not followed")
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.ELOOP, "a link in a container is not followed")
    return fd
