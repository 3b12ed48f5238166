"""The kernel's command line."""

from __future__ import annotations

import re
from collections.abc import Mapping

_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')


def cmdline(text: str) -> Mapping[str, str]:
    """Parameter to value, the last one of each name; a bare word has an empty value; quotes are taken off.

    What follows `--` is for the first program, not for the kernel.
    """
    found: dict[str, str] = {}
    for word in _WORD.findall(text):
        if word == "--":
            break
        name, _, value = word.replace('"', "").partition("=")
        if name:
            found[name] = value
    return found
