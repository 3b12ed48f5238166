"""systemd's grammars: words of a unit's command line, `Environment=`, and files named by `EnvironmentFile=`.

Sources: systemd.syntax(7), systemd.service(5) "Command lines", systemd.exec(5) `Environment=`, `EnvironmentFile=`. A value that
cannot be written safely is refused, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nearsocket.model.errors import NearsocketError
from nearsocket.model.text import one_line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: What needs no quotes on a command line.
_PLAIN = re.compile(r"[A-Za-z0-9_./:=@,+-]+\Z")


def refuse_control(text: str, what: str) -> str:
    """The text, if it is one line of UTF-8 without control characters. Raises NearsocketError, which does not show it."""
    found = next((character for character in text if ord(character) < 32 or ord(character) in (127, 0x85, 0x2028, 0x2029)), None)
    if found is not None:
        raise NearsocketError(f"{what}: expected a text without control characters, found {one_line(found)}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise NearsocketError(f"{what}: expected a text that UTF-8 can hold, found a lone surrogate") from None
    return text


def word(text: str, what: str = "a word of a command") -> str:
    """One argument of ExecStart= and its kin: `%` and `$` doubled, quoted where needed."""
    refuse_control(text, what)
    if _PLAIN.match(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def path(text: str, what: str = "a path") -> str:
    """One path of a setting that takes a list of them (RequiresMountsFor=): `%` doubled, quoted where needed; `$` means nothing."""
    refuse_control(text, what)
    if _PLAIN.match(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def assignment(name: str, value: str) -> str:
    """What stands after `Environment=`: `"NAME=value"`."""
    _name(name)
    refuse_control(value, f"variable {name}")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{name}={escaped}"'


def environment_file(values: Mapping[str, str]) -> str:
    """The text of a file for `EnvironmentFile=`, in order of name; `\\`, `"`, `` ` `` and `$` are escaped in double quotes."""
    lines = []
    for name in sorted(values):
        _name(name)
        value = refuse_control(values[name], f"variable {name}")
        lines.append(f'{name}="' + re.sub(r'([\\"`$])', r"\\\1", value) + '"\n')
    return "".join(lines)


def comment(text: str) -> str:
    """One line of comment. A backslash at its end would take in the next line, so it gets a full stop."""
    line = one_line(text)
    return f"# {line}." if line.endswith("\\") else f"# {line}"


def text_value(text: str, what: str) -> str:
    """A text that stands by itself, such as a Description: `%` doubled; a backslash at its end would continue the line."""
    refuse_control(text, what)
    if text.endswith("\\"):
        raise NearsocketError(f"{what}: expected a text that does not end in a backslash, found one that does")
    return text.replace("%", "%%")


def split(words: Iterable[str]) -> str:
    """Arguments as the value of one variable that a command line splits again (`$NAME`): each of plain characters.

    Raises NearsocketError for another one: quotes inside such a value are read differently between versions.
    """
    listed = list(words)
    for text in listed:
        if not _PLAIN.match(text):
            raise NearsocketError(f"expected a word of letters, digits and _./:=@,+-, found {one_line(text, 60)!r}")
    return " ".join(listed)


def _name(name: str) -> None:
    if not _NAME.match(name):
        raise NearsocketError(f"expected a variable's name, found {one_line(name, 60)!r}")
