"""What stays on the host while its driver changes: the state, the marker that keeps replicas down, packages, a snapshot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Optional

from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import State
from nearsocket.model.errors import NearsocketError
from nearsocket.model.places import HOLD_STARTS, REPROVISION
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
    """The state; None where no upgrade was ever begun. Raises OSError, NearsocketError for a file that is none."""
    try:
        return orders.state_from_json(disk.read(tree.at(orders.FILE), _LARGEST).decode("utf-8", "replace"))
    except FileNotFoundError:
        return None
    except NearsocketError as error:
        hint = f"look at dpkg -l and the module; then mv {orders.FILE} away, begin anew (--anew); rm {HOLD_STARTS} if it is left"
        raise NearsocketError(f"{orders.FILE}: {error.message}", hint) from None


def write(tree: Tree, state: State) -> State:
    """It is on the disk when this returns. Raises OSError."""
    path = tree.at(orders.FILE)
    disk.make_folders(path.parent)
    disk.replace(path, state.to_json().encode("ascii"), 0o600)
    return state


def hold_starts(tree: Tree, why: str) -> None:
    """From now on no replica starts: their units are skipped while this file is there. Raises OSError."""
    path = tree.at(HOLD_STARTS)
    disk.make_folders(path.parent)
    disk.replace(path, f"{why}\n".encode("utf-8", "replace"), 0o600)


def let_start(tree: Tree) -> None:
    """Replicas may start again. Raises OSError."""
    path = tree.at(HOLD_STARTS)
    if disk.remove(path):
        disk.sync_folder(path.parent)


def held(tree: Tree) -> bool:
    """Whether replicas are kept down."""
    return disk.there(tree.at(HOLD_STARTS))


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
