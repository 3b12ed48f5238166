"""What stays on the host while its driver changes: the state, the files that keep replicas down, packages, a snapshot."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional

from nearsocket.model import places
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import State
from nearsocket.model.errors import NearsocketError
from nearsocket.model.places import REPROVISION
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree

_LARGEST = 1 << 20
#: Fetched packages of the new and the old version, what a trial build is made in, and the host as it was.
NEXT, PREVIOUS, TRIAL, SNAPSHOT = (
    f"{REPROVISION}/next",
    f"{REPROVISION}/previous",
    f"{REPROVISION}/trial",
    f"{REPROVISION}/before.json",
)


def read(tree: Tree) -> Optional[State]:
    """The state; None where no upgrade was ever begun. Raises NearsocketError for a file that is none or cannot be read."""
    try:
        return orders.state_from_json(disk.read(tree.at(orders.FILE), _LARGEST).decode("utf-8", "replace"))
    except FileNotFoundError:
        return None
    except (NearsocketError, OSError) as error:
        said = error.message if isinstance(error, NearsocketError) else error.strerror or str(error)
        hint = "--anew keeps that file aside, judges the host by its packages, module and held replicas, and goes on from there"
        raise NearsocketError(f"{orders.FILE}: {one_line(said, 200)}", hint) from None


def set_aside(tree: Tree) -> str:
    """A state that nobody can read makes room for the next one; where it is kept. Raises OSError."""
    path = tree.at(orders.FILE)
    aside = f"{orders.FILE}.unreadable-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
    path.rename(tree.at(aside))
    disk.sync_folder(path.parent)
    return aside


def write(tree: Tree, state: State) -> State:
    """It is on the disk when this returns. Raises OSError."""
    path = tree.at(orders.FILE)
    disk.make_folders(path.parent)
    disk.replace(path, state.to_json().encode("ascii"), 0o600)
    return state


def hold(tree: Tree, replicas: Iterable[str], why: str) -> None:
    """From now on these do not start: systemd skips their units while their files are there. Raises OSError."""
    folder = tree.at(places.HOLD_STARTS)
    disk.make_folders(folder.parent)
    if not folder.is_dir():
        disk.remove(folder)  # one file for all, of an older nearsocket
    disk.make_folders(folder)
    for name in replicas:
        disk.remove(tree.at(places.let_start(name)))
        disk.replace(tree.at(places.hold_file(name)), f"{one_line(why, 400)}\n".encode("utf-8", "replace"), 0o600)


def let_go(tree: Tree, replica: str) -> None:
    """That one is proven: it may start by a boot and after a crash from now on. Raises OSError."""
    path = tree.at(places.hold_file(replica))
    if disk.remove(path):
        disk.sync_folder(path.parent)
    with contextlib.suppress(OSError):  # others are held still
        path.parent.rmdir()
        disk.sync_folder(path.parent.parent)


def let_all_go(tree: Tree) -> None:
    """No replica is held any more. Raises OSError."""
    path = tree.at(places.HOLD_STARTS)
    if path.is_dir():
        disk.remove_tree(path)
    elif disk.remove(path):
        disk.sync_folder(path.parent)


@contextlib.contextmanager
def let_start(tree: Tree, replica: str) -> Iterator[None]:
    """While the block runs that replica may start though it is held. What says so is in /run: a boot in between finds it held.

    Raises OSError.
    """
    marker = tree.at(places.let_start(replica))
    disk.make_folders(marker.parent, 0o711)
    disk.replace(marker, b"docs/reprovision.md\n", 0o644)
    try:
        yield
    finally:
        disk.remove(marker)


def end_leaves(tree: Tree) -> None:
    """No replica that is held may start, until `let_start` says so again. Raises OSError."""
    for replica in held(tree):
        disk.remove(tree.at(places.let_start(replica)))


def held(tree: Tree) -> tuple[str, ...]:
    """The replicas that are kept down. Raises OSError."""
    folder = tree.at(places.HOLD_STARTS)
    return tuple(sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))) if folder.is_dir() else ()


def folder(tree: Tree, path: str) -> Path:
    """That folder of ours, made where it is not there. Raises OSError."""
    found = tree.at(path)
    disk.make_folders(found, 0o755)
    return found


def forget_packages(tree: Tree) -> None:
    """Fetched packages and the trial build go: they are hundreds of megabytes. Raises OSError."""
    for path in (NEXT, PREVIOUS, TRIAL):
        if tree.at(path).is_dir():
            disk.remove_tree(tree.at(path))


def now() -> str:
    """This moment (ISO 8601, UTC)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
