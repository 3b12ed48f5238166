"""The sizes that an all-reduce is measured at, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nearsocket.model.errors import UsageError
from nearsocket.model.text import one_line

KIB, MIB = 1 << 10, 1 << 20
#: One row of a hidden size of 6,144 in bf16, and 4,096 rows of it: what a decode step and a prefill chunk exchange (FIELD_NOTES 5).
DECODE_BYTES, PREFILL_BYTES = 12 * KIB, 48 * MIB
#: 8 KiB to 256 MiB by powers of two, and these two.
DEFAULT = tuple(sorted({*(1 << exponent for exponent in range(13, 29)), DECODE_BYTES, PREFILL_BYTES}))
#: What a restart is judged by in a few seconds.
FEW = (DECODE_BYTES, MIB, PREFILL_BYTES)
LARGEST = 16 << 30
_TEXT = re.compile(r"([1-9][0-9]{0,11})([KMG]?)(?:i?B)?\Z", re.IGNORECASE)
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": 1 << 30}


def parse(text: str) -> tuple[int, ...]:
    """`12K,48M` as bytes, ascending, each once; a number alone is bytes. Raises UsageError.

    Every size is a whole number of 64 bytes, so that it has as many elements on each of up to eight ranks.
    """
    found = set()
    for part in text.split(","):
        match = _TEXT.match(part.strip())
        size = int(match[1]) * _UNITS[match[2].upper()] if match else 0
        if not 64 <= size <= LARGEST or size % 64:
            raise UsageError(f"expected sizes such as 12K,48M (multiples of 64 bytes, up to 16G), found {one_line(part, 40)!r}")
        found.add(size)
    return tuple(sorted(found))


def within(sizes: Iterable[int], largest: int) -> tuple[int, ...]:
    """The sizes that fit."""
    return tuple(size for size in sizes if size <= largest)


def render(size: int) -> str:
    """`12 KiB`, `48 MiB`; bytes where it is no whole number of them."""
    for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"
