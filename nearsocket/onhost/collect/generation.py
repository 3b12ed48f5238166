"""The generation that is in force on this host, if nearsocket manages it: its manifest, and the fingerprint that it rests on."""

from __future__ import annotations

from nearsocket.model.generation import MANIFEST
from nearsocket.model.places import CURRENT, FINGERPRINT
from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect.files import Context, absent, ok_text, read_text

#: A manifest names a few files for each replica; a larger one is something else.
CAP_BYTES = 1 << 20


def generation(context: Context) -> Source:
    """The manifest's text; absent where there is none."""
    return _text(context, MANIFEST)


def fingerprint(context: Context) -> Source:
    """The fingerprint's text; absent where there is none."""
    return _text(context, FINGERPRINT)


def _text(context: Context, name: str) -> Source:
    try:
        return ok_text(read_text(context.path(f"{CURRENT}/{name}"), CAP_BYTES))
    except FileNotFoundError:
        return absent("nearsocket manages nothing here")
