"""Pasted text made plain: bytes decoded, terminal escapes and control characters removed."""

from __future__ import annotations

import codecs
import re

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: Colours whose escape character was lost or written out by the tool that showed them.
_LOST = re.compile(r"(?:\^\[|␛)?\[(?:\d{1,3}(?:;\d{1,3})*)?m|\^\[\[[0-9;]*K")
#: Begins with a plain character, so that a line without one costs nothing.
_HINT = re.compile(r"\[[\d;]*[mK]")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decode(raw: bytes) -> str:
    """The bytes as text: UTF-8, or UTF-16 and UTF-32 by their mark; what is damaged becomes the replacement character."""
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return raw.decode(name, errors="replace").lstrip("\ufeff")
    return raw.decode("utf-8", errors="replace")


def clean(line: str) -> str:
    """The line without terminal escapes and other control characters; tabs stay, other spaces become plain ones."""
    plain = _ANSI.sub("", line) if "\x1b" in line else line
    if _HINT.search(plain):
        plain = _LOST.sub("", plain)
    if plain.replace("\t", "").isprintable():
        return plain
    return "".join(" " if ch.isspace() and ch != "\t" else ch for ch in plain if ch == "\t" or ch.isprintable() or ch.isspace())


def is_binary(raw: bytes) -> bool:
    """Whether the bytes are no text: NUL bytes without a UTF-16 or UTF-32 mark."""
    return b"\0" in raw[: 1 << 20] and not any(raw.startswith(mark) for mark, _ in _MARKS)
