"""A replica's start record, as the generation in force has it (`nearsocket.start/1`).

Every step of a unit reads it, and most need nothing else: this module imports little.
"""

from __future__ import annotations

from nearsocket.model import start
from nearsocket.model.errors import UsageError
from nearsocket.model.start import Start
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree


def load_start(tree: Tree, replica: str) -> Start:
    """The replica's start record. Raises NearsocketError, OSError."""
    if "/" in replica or replica in ("", ".", ".."):
        raise UsageError(f"expected a replica's name, found {one_line(replica, 60)!r}")
    return start.from_json(disk.read(tree.current / "replicas" / f"{replica}.json").decode("utf-8", "replace"))
