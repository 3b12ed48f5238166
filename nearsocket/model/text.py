"""Outside text made safe to print: titles, container names, command output may hold anything."""

from __future__ import annotations

import re

#: What a reader knows better than a number.
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x00": "\\0"}
#: A line that says what went wrong, among those that a container runtime prints.
_FAULT = re.compile(r"^.*(?:\berror\b|Error).*$", re.MULTILINE)


def _escape(character: str) -> str:
    """One character as an escape of printable ASCII: `\\x1b`, `\\u202e`, `\\U000e0041`."""
    named = _NAMED.get(character)
    if named:
        return named
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def one_line(text: str, limit: int = 0) -> str:
    """The text on one line with nothing in it that a terminal obeys, cut to `limit` characters (0: not cut).

    Everything that is neither printable nor a space is escaped: control characters, ANSI and OSC introducers, bidirectional
    overrides, zero-width and unassigned characters, lone surrogates, line and paragraph separators, no-break spaces.
    A backslash stays as it is: the result is for eyes, it is not meant to be decoded again. A cut text ends in `...`.
    """
    if limit and len(text) > limit:
        text = text[: max(limit - 3, 0)] + "..."
    if text.isprintable():
        return text
    safe = "".join(character if character.isprintable() else _escape(character) for character in text)
    return safe if not limit or len(safe) <= limit else safe[: max(limit - 3, 0)] + "..."


def decode(data: bytes) -> str:
    """Text of outside bytes; what is not UTF-8 becomes `\\xNN`."""
    return data.decode("utf-8", "backslashreplace")


def brief(text: str, limit: int = 120) -> str:
    """As `one_line`, short enough for a sentence."""
    return one_line(text, limit)


def fault(error: BaseException, limit: int = 300) -> str:
    """An error of code that we do not know, as `Type: message` on one line: its own `__str__` may fail too."""
    try:
        said = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException as second:
        said = f"its message cannot be had ({type(second).__name__})"
    return one_line(f"{type(error).__name__}: {said}" if said else type(error).__name__, limit)


def visible(text: str) -> str:
    """As `one_line`, for a text of several lines: the line feeds stay, tabs become four spaces, CR LF is one line feed."""
    return "\n".join(one_line(line) for line in text.replace("\r\n", "\n").replace("\t", "    ").split("\n"))


def in_words(error: Exception) -> str:
    """A fault of the system in words: what could not be done, and to which file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def complaint(text: str, code: int) -> str:
    """Why a command gave no answer, in the line of what it printed that tells."""
    found = _FAULT.search(text)
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line((found[0] if found else lines[-1] if lines else f"exit code {code}").strip(), 240)
