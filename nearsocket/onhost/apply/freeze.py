"""Whether this host is frozen, and the log of those who changed it all the same."""

from __future__ import annotations

import datetime
import json
import os
import syslog
from pathlib import Path
from typing import Optional

from nearsocket.model import freeze
from nearsocket.model.errors import NearsocketError
from nearsocket.model.freeze import Freeze
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree

_LARGEST = 1 << 16
HINT = 'wait, or say why not: a rollout --override-freeze "...", a deploy --data override_freeze="..."'


def today() -> str:
    """The day by this host's clock, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def in_force(tree: Tree, given: Optional[Freeze] = None) -> Optional[Freeze]:
    """The freeze of this host's own file, or else `given` (the inventory's); None where there is none or it is over.

    A file that is there and cannot be read freezes.
    """
    for found in (_file(tree), given):
        if found is not None and not found.over(today()):
            return found
    return None


def pass_or_refuse(tree: Tree, given: Optional[Freeze], why: Optional[str], holder: str) -> Optional[str]:
    """Whether a change may go on. What to note where it goes on by an override, which is written down first; None: not frozen.

    Raises NearsocketError where the host is frozen and nobody says why it should be changed, OSError.
    """
    found = in_force(tree, given)
    if found is None:
        return None
    if not why:
        raise NearsocketError(f"expected a host that may be changed, found it {found}", HINT)
    _log(tree, {"at": _now(), "who": holder, "why": one_line(why, 300), "freeze": str(found)})
    return f"{found}; overridden: {one_line(why, 300)}"


def _file(tree: Tree) -> Optional[Freeze]:
    path = tree.at(freeze.FILE)
    try:
        text = disk.read(path, _LARGEST).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return Freeze(None, f"it cannot be read ({error.strerror or error})", freeze.FILE)
    return freeze.parse(text, freeze.FILE)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _log(tree: Tree, entry: dict[str, str]) -> None:
    if tree.root == Path("/"):  # the journal outlasts the log where nearsocket is removed
        syslog.openlog("nearsocket")
        syslog.syslog(syslog.LOG_WARNING, one_line(f"{entry['who']} changes a host that is {entry['freeze']}: {entry['why']}"))
    path = tree.at(freeze.LOG)
    disk.make_folders(path.parent)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, (json.dumps(entry) + "\n").encode("ascii"))
        os.fsync(fd)
    finally:
        os.close(fd)
    disk.sync_folder(path.parent)
