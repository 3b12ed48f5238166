"""What a client sends to a host, taken apart as the bootstrap there takes it."""

from __future__ import annotations

from nearsocket.control import program


def taken_apart(stdin: bytes) -> tuple[list[str], bytes]:
    """The action with its arguments, and what the action reads."""
    head, _, rest = stdin[stdin.index(program.MARKER) :].partition(b"\n")
    parts, at = [], 0
    for size in map(int, head.split()[1:]):
        parts.append(rest[at : at + size])
        at += size
    return parts[1].decode().split("\0"), parts[3]
