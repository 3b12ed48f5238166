"""The key that an engine wants, read from a file on its host: held against what a header can carry, and shown to nobody."""

from __future__ import annotations

import re
from pathlib import Path

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk

_LARGEST = 64 << 10
_KEY = re.compile(rb"[\x21-\x7e]{1,4096}\Z")


def load(path: Path) -> str:
    """The key. Raises NearsocketError, which names the file and nothing of what is in it."""
    named = one_line(str(path), 200)
    try:
        data = disk.read(path, _LARGEST).strip()
    except OSError as error:
        raise NearsocketError(f"expected to read the engine's key from {named}, found: {error.strerror or error}") from None
    if not _KEY.match(data):
        raise NearsocketError(
            f"expected the engine's key in {named}, one word of printable ASCII, found something else (not shown)"
        )
    return data.decode("ascii")
