"""Progress for people: short lines on standard error with the seconds since the command began."""

from __future__ import annotations

import sys
import time

_STARTED = time.monotonic()


def clean(text: str) -> str:
    """The text in one line without control characters; what other programs print never reaches a terminal raw."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def say(subject: str, text: str) -> None:
    """One progress line: who it is about, what happens now."""
    print(f"lab {time.monotonic() - _STARTED:5.1f} s  {subject}: {clean(text)}", file=sys.stderr, flush=True)
