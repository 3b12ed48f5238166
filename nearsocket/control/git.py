"""Which commit of its repository an inventory is from."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_ASK_S = 10.0


@dataclass(frozen=True)
class Commit:
    """The commit's hash and time (ISO 8601, UTC), both None outside a repository; `dirty`: the folder has changes of its own."""

    id: str | None = None
    at: str | None = None
    dirty: bool = False


def commit(path: Path) -> Commit:
    """The newest commit of the repository that the file or folder lies in."""
    folder = path if path.is_dir() else path.parent
    found = _git(folder, "log", "-1", "--format=%H %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ")
    if not found:
        return Commit()
    id, _, at = found.strip().partition(" ")
    return Commit(id, at, bool((_git(folder, "status", "--porcelain", "--", ".") or "").strip()))


def _git(folder: Path, *words: str) -> str | None:
    try:
        ended = subprocess.run(
            ["git", "-C", str(folder), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=False,
            env={"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home())},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None
