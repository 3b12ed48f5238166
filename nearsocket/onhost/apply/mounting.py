"""What is mounted on this host, and the small file systems of starts: a container's logs must not fill /run."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Optional

from nearsocket.onhost.apply.tree import Tree

#: What one start's NCCL logs may take. Some hundred KiB a rank are usual; what reads them stops at 4 MiB (verify/logs.py).
LOG_BYTES, LOG_NAMES = 32 << 20, 4096
#: linux/mount.h: MS_NOSUID | MS_NODEV | MS_NOEXEC; MNT_DETACH | UMOUNT_NOFOLLOW.
_FLAGS, _DETACH = 2 | 4 | 8, 2 | 8
_ESCAPED = re.compile(r"\\([0-7]{3})")
_libc = ctypes.CDLL(None, use_errno=True)


def small(folder: Path) -> Optional[str]:
    """Mount a tmpfs of that size over the folder, which everybody may write to; why that could not be done, or None."""
    return tmpfs(folder, f"mode=1777,size={LOG_BYTES},nr_inodes={LOG_NAMES}")


def tmpfs(folder: Path, options: str) -> Optional[str]:
    """Mount a tmpfs with those options over the folder; why that could not be done, or None."""
    code = _libc.mount(b"nearsocket", os.fsencode(folder), b"tmpfs", ctypes.c_ulong(_FLAGS), options.encode())
    return os.strerror(ctypes.get_errno()) if code else None


def release(tree: Tree, folder: Path) -> None:
    """Nothing is mounted at or below that folder any more, and whoever is still in there keeps it. Raises OSError."""
    points = [tree.at(point) for point, kind, _ in mounts(tree) if kind == "tmpfs"]
    for point in [point for point in reversed(points) if point == folder or folder in point.parents]:
        if _libc.umount2(os.fsencode(point), _DETACH):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(point))


def mounted(tree: Tree, point: str) -> bool:
    """Whether something is mounted there."""
    return any(found == point for found, _, _ in mounts(tree))


def mounts(tree: Tree) -> list[tuple[str, str, str]]:
    """Each mount as point, type, options (of the file system), from mountinfo; later ones cover earlier ones."""
    try:
        text = tree.at("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, behind = before.split(), after.split()
        if len(words) > 4 and len(behind) > 2:
            point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), words[4])
            found.append((point, behind[0], behind[2]))
    return found
