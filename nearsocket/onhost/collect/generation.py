"""The manifest of the generation that is in force on this host, if nearsocket manages it."""

from __future__ import annotations

from nearsocket.model.generation import MANIFEST
from nearsocket.model.programs import CURRENT
from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect.files import Context, absent, ok_text, read_text

#: A manifest names a few files for each replica; a larger one is something else.
CAP_BYTES = 1 << 20


def generation(context: Context) -> Source:
    """The manifest's text; absent where there is none."""
    try:
        return ok_text(read_text(context.path(f"{CURRENT}/{MANIFEST}"), CAP_BYTES))
    except FileNotFoundError:
        return absent("nearsocket manages nothing here")
