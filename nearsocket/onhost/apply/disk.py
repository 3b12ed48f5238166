"""Writing so that a power cut leaves the old or the new: temporary name, fsync, one rename, fsync of the folder.

Every change goes through functions of `os`, one system call each; the tests end the process at each of them in turn.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Ours alone: names that begin so are leftovers of a write that was cut short.
TEMPORARY = ".nearsocket-new-"


def sync_folder(folder: Path) -> None:
    """The folder's entries are on the disk when this returns."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_new(path: Path, data: bytes, mode: int, uid: int = -1, gid: int = -1) -> None:
    """A new file with that content, mode and owner, on the disk when this returns; its folder's entry is not yet."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if uid != -1 or gid != -1:
            os.fchown(fd, uid, gid)
        os.fchmod(fd, mode)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes, mode: int) -> None:
    """The file has that content, whatever was there; never half of it."""
    new = path.with_name(TEMPORARY + path.name)
    remove(new)
    try:
        write_new(new, data, mode)
        new.replace(path)
    except OSError:
        remove(new)
        raise
    sync_folder(path.parent)


def link(path: Path, target: str) -> None:
    """The path is a symbolic link to the target, whatever was there."""
    new = path.with_name(TEMPORARY + path.name)
    remove(new)
    new.symlink_to(target)
    try:
        new.replace(path)
    except OSError:
        remove(new)
        raise
    sync_folder(path.parent)


def remove(path: Path) -> bool:
    """Whether there was something to remove: a file or link, not a folder."""
    if not there(path):
        return False
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def there(path: Path) -> bool:
    """Whether anything has that name, a link to nothing included. A read-only file system refuses to remove what is not there."""
    return path.is_symlink() or path.exists()


def make_folders(path: Path, mode: int = 0o755) -> None:
    """The folder and those above it, each on the disk."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode)
        sync_folder(folder.parent)


def remove_tree(folder: Path) -> None:
    """The folder and all in it, links not followed."""
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink()
    folder.rmdir()


def sweep(folder: Path) -> None:
    """Remove what writes that were cut short left in that folder."""
    try:
        entries = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith(TEMPORARY):
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            else:
                remove(entry)


def read(path: Path, limit: int = 16 << 20) -> bytes:
    """A regular file's bytes, links not followed. Raises OSError, also for what is no regular file or larger than the limit."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"expected a regular file at {path}")
        if found.st_size > limit:
            raise OSError(f"expected at most {limit} bytes at {path}, found {found.st_size}")
        parts: list[bytes] = []
        while True:
            part = os.read(fd, 1 << 20)
            if not part:
                return b"".join(parts)
            parts.append(part)
    finally:
        os.close(fd)
