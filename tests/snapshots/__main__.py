"""Write all fixture snapshots anew."""

from __future__ import annotations

from tests.snapshots import FOLDER, path
from tests.snapshots.hosts import FIXTURES

FOLDER.mkdir(parents=True, exist_ok=True)
for name, make in FIXTURES.items():
    path(name).write_text(make().to_json() + "\n", encoding="utf-8")
