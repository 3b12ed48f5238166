"""The record that an image carries beside the patch: where the package lies in it, and what it was made with. Pure."""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass

from nearsocket.model.errors import NearsocketError

SCHEMA = "nearsocket.image-record/1"
#: Where an image that was built by the kit's Dockerfile carries it.
PLACE = "/usr/local/share/nearsocket/image.json"


@dataclass(frozen=True)
class Record:
    """The folder that holds the package, the patch's name, the kit's digest, the engine's release."""

    root: str
    patch: str
    kit: str
    release: str

    def to_json(self) -> str:
        """The record as it is written."""
        return json.dumps({"schema": SCHEMA, **self.__dict__}, indent=2) + "\n"


def read(data: bytes) -> Record:
    """The record from an image, which may hold anything. Raises NearsocketError, one line, where it is none."""
    try:
        raw = json.loads(data.decode("utf-8"))
        record = Record(*(str(raw[name]) for name in ("root", "patch", "kit", "release")))
    except (ValueError, KeyError, TypeError):
        raise NearsocketError(f"{PLACE}: expected the record of a patched image, found something else") from None
    if raw.get("schema") != SCHEMA or not posixpath.isabs(record.root) or posixpath.normpath(record.root) != record.root:
        raise NearsocketError(f"{PLACE}: expected {SCHEMA} with an absolute folder, found something else")
    return record
