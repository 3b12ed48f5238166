"""Makes the fixture snapshots under tests/data/hosts: `python -m tests.snapshots` writes them anew, a test holds them equal.

Every other area's tests may load one: `tests.snapshots.load("two-socket-bound")`. Shapes are docs/snapshot.md's; names,
addresses, serials and UUIDs are made up.
"""

from __future__ import annotations

from pathlib import Path

from nearsocket.model.snapshot import Snapshot, from_json

FOLDER = Path(__file__).parent.parent / "data" / "hosts"


def path(name: str) -> Path:
    """The file of that fixture."""
    return FOLDER / f"{name}.snapshot.json"


def load(name: str) -> Snapshot:
    """The fixture snapshot of that name, read from its file."""
    return from_json(path(name).read_text(encoding="utf-8"))


def names() -> list[str]:
    """All fixtures that have a file."""
    return sorted(file.name.removesuffix(".snapshot.json") for file in FOLDER.glob("*.snapshot.json"))
