"""Whether a replica that has just come up was proven by its start: asked between two replicas, so that a far one stops the next."""

from __future__ import annotations

from typing import Optional

from nearsocket.model import places, verdict
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest
from nearsocket.model.order import StopAt
from nearsocket.model.rollout import proof
from nearsocket.onhost import hook
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree

#: A verdict has the findings of one replica.
_LARGEST_BYTES = 4 << 20


def problem(tree: Tree, manifest: Manifest, unit: str, stop_at: StopAt) -> Optional[str]:
    """Why what that unit's start proved is not good enough; None where it is, and for a unit that is no replica's."""
    replica = next((one.name for one in manifest.replicas if one.unit == unit), None)
    if replica is None or stop_at is StopAt.NOTHING:
        return None
    return hooked(tree, replica) or unproven(tree, replica, stop_at)


def hooked(tree: Tree, replica: str) -> Optional[str]:
    """What its hooks left to say; None where none failed."""
    said = hook.failed(tree, replica)
    return None if said is None else f"{said}; whether it gets traffic is not known"


def unproven(tree: Tree, replica: str, stop_at: StopAt) -> Optional[str]:
    """As `problem`, hooks left out: they say nothing of the engine, its GPUs and its memory."""
    accept_unknown = stop_at is StopAt.FAILURE
    start = _newest(tree, replica)
    try:
        text = disk.read(tree.at(places.verdict_file(replica)), _LARGEST_BYTES).decode("utf-8", "replace")
        found = verdict.from_json(text)
    except (OSError, NearsocketError):
        found = None
    if found is None or found.start != start:
        return None if accept_unknown else f"replica {replica} is up, and its start left no proof (see the unit's journal)"
    return proof.problem(found, accept_unknown)


def _newest(tree: Tree, replica: str) -> Optional[str]:
    """The folder of the newest start; None where none is known."""
    try:
        text = disk.read(tree.at(places.start_env(replica)), 1 << 16).decode("utf-8", "replace")
    except OSError:
        return None
    return places.start_folder(text, replica).rpartition("/")[2] or None
