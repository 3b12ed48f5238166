"""What changes in the managed files, as a unified diff, line for line as the bytes are; values of secret names are masked. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from nearsocket.model.text import one_line
from nearsocket.onhost.collect import redact

NO_FEED = "\\ No newline at end of file"
_LONGEST = 1 << 20


def unified(paths: Iterable[str], old: Mapping[str, bytes], new: Mapping[str, bytes]) -> str:
    """The diff of these files; one that a side does not have is /dev/null there. One that is no text says so."""
    return "".join(_one(path, old.get(path), new.get(path)) for path in sorted(paths))


def _one(path: str, old: bytes | None, new: bytes | None) -> str:
    names = [one_line(f"{side}/{path}") if data is not None else "/dev/null" for side, data in (("a", old), ("b", new))]
    if old == new:
        return f"--- {names[0]}\n+++ {names[1]}\n# the same content: mode or owner changes\n"
    texts = [_lines(data) for data in (old, new)]
    if texts[0] is None or texts[1] is None:
        return f"--- {names[0]}\n+++ {names[1]}\n# not a text, or too long to show\n"
    parts = list(difflib.unified_diff(texts[0], texts[1], names[0], names[1], lineterm="", n=3))
    shown = [*parts[:2], *(_shown(part) for part in parts[2:])]
    return "".join(f"{line}\n" for line in shown)


def _lines(data: bytes | None) -> list[str] | None:
    """The lines; the last one says so where no line feed ends it."""
    if data is None:
        return []
    if len(data) > _LONGEST:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]}\n{NO_FEED}"]


def _shown(line: str) -> str:
    if line.startswith("@@"):
        return line
    body, feed, _ = line[1:].partition("\n")
    return line[0] + one_line(redact.text(body)) + (f"\n{NO_FEED}" if feed else "")
