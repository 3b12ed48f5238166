"""Who makes a generation, when, with which version, and from which commit of the inventory."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import nearsocket
from nearsocket.model.generation import Record
from nearsocket.model.text import one_line

#: git answers at once or, on a dead network file system, never.
TIMEOUT_S = 10.0


def record(inventory: Path | None, now: datetime, environment: Mapping[str, str] = os.environ) -> Record:
    """The record of a generation made now. Without git, or outside a repository, it has no commit, which is no fault.

    `dirty`: the inventory's folder has changes that are not committed. Times are UTC.
    """
    commit, committed_at, dirty = _git(inventory) if inventory is not None else (None, None, False)
    return Record(
        made_by=who(environment),
        made_at=now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        version=nearsocket.__version__,
        commit=commit,
        committed_at=committed_at,
        dirty=dirty,
    )


def who(environment: Mapping[str, str]) -> str:
    """`user@host` of whoever runs this."""
    return one_line(f"{_user(environment)}@{socket.gethostname() or 'localhost'}", 120)


def _user(environment: Mapping[str, str]) -> str:
    """Who typed it: under sudo the user who called it."""
    name = environment.get("SUDO_USER")
    if name:
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number without a name
        return str(os.getuid())


def _git(inventory: Path) -> tuple[str | None, str | None, bool]:
    folder = inventory if inventory.is_dir() else inventory.parent
    head = _run(folder, "log", "-1", "--format=%H %ct")
    commit, _, seconds = (head or "").strip().partition(" ")
    if not commit or not seconds.isdigit():
        return None, None, False
    status = _run(folder, "status", "--porcelain", "--", ".")
    when = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return commit, when, bool(status is None or status.strip())


def _run(folder: Path, *words: str) -> str | None:
    """What git writes; None where it fails. Nothing that a repository's own configuration names is started."""
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
