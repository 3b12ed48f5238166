"""Where the lab keeps things: images in a cache, running labs in a state folder; and locks on both."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.errors import LabError
from lab.say import say


def _folder(variable: str, base: str, fallback: str, leaf: str) -> Path:
    named = os.environ.get(variable)
    if named:
        return Path(named).absolute()
    home = os.environ.get(base)
    return (Path(home) if home and Path(home).is_absolute() else Path.home() / fallback) / "nearsocket" / leaf


def cache_folder() -> Path:
    """Images: NEARSOCKET_LAB_CACHE, else the user's cache folder."""
    return _folder("NEARSOCKET_LAB_CACHE", "XDG_CACHE_HOME", ".cache", "lab")


def state_folder() -> Path:
    """Running labs: NEARSOCKET_LAB_STATE, else the user's state folder."""
    return _folder("NEARSOCKET_LAB_STATE", "XDG_STATE_HOME", ".local/state", "lab")


def make_folder(path: Path, variable: str) -> Path:
    """Make the folder for this user alone; LabError names the variable that moves it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"expected to write to {path}, found: {error.strerror}", f"set {variable} to a folder that can be written"
        ) from None
    return path


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file; wait, and say so, while another command holds it.

    The file may be deleted by its holder (a lab that goes down): whoever waited on the deleted one tries anew.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(what, "another command works on it; waiting for that one")
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _same_file(handle, path):
                yield
                return
        finally:
            os.close(handle)


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def is_locked(path: Path) -> bool:
    """Whether a command holds this lock now."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def remove_tree(path: Path) -> None:
    """Remove a folder of ours, unless something is still mounted below it: then nothing is touched and LabError says so."""
    inside = f"{path}/"
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    held = [mount for mount in mounts if mount.startswith(inside)]
    if held:
        raise LabError(f"expected nothing mounted below {path}, found {held[0]}", f"umount {held[0]}, then try again")
    shutil.rmtree(path, ignore_errors=True)


def need_space(folder: Path, needed_mib: int, variable: str) -> None:
    """LabError where the folder's file system has less than that free."""
    free_mib = shutil.disk_usage(folder).free >> 20
    if free_mib < needed_mib:
        raise LabError(
            f"expected {needed_mib} MiB free in {folder}, found {free_mib} MiB",
            f"free some, or set {variable} to a folder with room",
        )
