"""An apply keeps away from a host whose driver is being upgraded: its replicas are down, and systemd skips their starts."""

from __future__ import annotations

from nearsocket.model.errors import NearsocketError
from nearsocket.model.places import HOLD_STARTS
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree


def refuse(tree: Tree) -> None:
    """Raises NearsocketError where an upgrade keeps replicas from starting, with who began it."""
    path = tree.at(HOLD_STARTS)
    held = sorted(entry for entry in path.iterdir() if not entry.name.startswith(".")) if path.is_dir() else [path]
    if not held or not disk.there(held[0]):
        return
    try:
        said = one_line(disk.read(held[0], 1 << 16).decode("utf-8", "replace").strip(), 400)
    except OSError:
        said = f"{HOLD_STARTS} is there"
    raise NearsocketError(
        f"expected replicas that may start, found: {said}", "nearsocket rollout INVENTORY reprovision --driver VERSION --resume"
    )
