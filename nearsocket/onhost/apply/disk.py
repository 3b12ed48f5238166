"""Writing so that a power cut leaves the old or the new: temporary name, fsync, one rename, fsync of the folder.

Every change goes through functions of `os`, one system call each; the tests end the process at each of them in turn.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Ours alone: names that begin so are leftovers of a write that was cut short.
TEMPORARY = ".nearsocket-new-"
#: How a file's or link's temporary name ends: no collector reads that as one of its own (node_exporter takes any *.prom).
_ENDING = ".tmp"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
    """The file has that content, whatever was there; never half of it, also where two write it at once."""
    new = _own_name(path)
    try:
        write_new(new, data, mode)
        new.replace(path)
    except OSError:
        remove(new)
        raise
    sync_folder(path.parent)


def link(path: Path, target: str) -> None:
    """The path is a symbolic link to the target, whatever was there."""
    new = _own_name(path)
    new.symlink_to(target)
    try:
        new.replace(path)
    except OSError:
        remove(new)
        raise
    sync_folder(path.parent)


def _own_name(path: Path) -> Path:
    """A temporary name that no other writer has. What writers that are gone left of this path is removed: nobody else may look."""
    begin = f"{TEMPORARY}{path.name}."
    for entry in os.scandir(path.parent):
        number = entry.name[len(begin) : -len(_ENDING)]
        ours = entry.name.startswith(begin) and entry.name.endswith(_ENDING) and number.isdigit()
        if ours and (int(number) == os.getpid() or not _lives(int(number))):
            remove(path.with_name(entry.name))
    return path.with_name(f"{begin}{os.getpid()}{_ENDING}")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # somebody else's
    return True


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
    """The folder and all in it, links not followed, however deep it is.

    A container may have made it: folders inside others are moved up to the first before they are emptied, so that neither the
    stack, nor a path, nor the number of open files grows with the depth.
    """
    try:
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return
    try:
        waiting = _emptied(top)
        taken, number = set(waiting), 0
        while waiting:
            name = waiting.pop()
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                for deeper in _emptied(inner):
                    number += 1
                    while f"{TEMPORARY}{number}" in taken:  # a name that was there before
                        number += 1
                    os.rename(deeper, f"{TEMPORARY}{number}", src_dir_fd=inner, dst_dir_fd=top)
                    waiting.append(f"{TEMPORARY}{number}")
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _emptied(fd: int) -> list[str]:
    """The folder's own folders, once all else in it is removed."""
    folders = []
    with os.scandir(fd) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=fd)
    return folders


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
