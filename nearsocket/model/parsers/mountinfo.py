"""/proc/PID/mountinfo: `36 35 0:56 / /dev/shm rw,nosuid shared:3 - tmpfs shm rw,size=65536k,mpol=bind:0`."""

from __future__ import annotations

import re
from typing import Optional

from nearsocket.model.host import Mount

_OCTAL = re.compile(r"\\([0-3][0-7]{2})")
_NODES = re.compile(r"[0-9]+(-[0-9]+)?")


def unescape(text: str) -> str:
    r"""The text with the kernel's octal escapes undone: `\040` is a space, `\134` a backslash."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def mount(line: str) -> Optional[Mount]:
    """The mount of one line; None where the line has not the fields of one."""
    head, dash, tail = line.strip().partition(" - ")
    fields, rest = head.split(" "), tail.split(" ", 2)
    if not dash or len(fields) < 6 or len(rest) < 2 or ":" not in fields[2]:
        return None
    options = _options(rest[2]) if len(rest) == 3 else ()
    policy = next((option[len("mpol=") :] for option in options if option.startswith("mpol=")), None)
    return Mount(
        point=unescape(fields[4]),
        kind=rest[0],
        source=unescape(rest[1]),
        options=options,
        policy=policy,
        root=unescape(fields[3]),
        device=fields[2],
    )


def mounts(text: str) -> tuple[Mount, ...]:
    """The mounts of all lines that can be read, in the kernel's order (a later one covers an earlier one's point)."""
    found = (mount(line) for line in text.splitlines())
    return tuple(item for item in found if item is not None)


def _options(text: str) -> tuple[str, ...]:
    # `mpol=bind:0,2` has a comma inside its value and `mpol=prefer (many):0` a space; mm/mempolicy.c escapes neither.
    found: list[str] = []
    for part in text.strip().split(","):
        if found and found[-1].startswith("mpol=") and _NODES.fullmatch(part):
            found[-1] += "," + part
        elif part:
            found.append(part)
    return tuple(found)
