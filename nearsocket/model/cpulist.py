"""CPU and node lists as the kernel writes them: `0-11,24-35`, and hexadecimal masks `ffff,0000ffff`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20})(?::([0-9]{1,20})/([0-9]{1,20}))?)?\Z")
#: More than any kernel can be built for (CONFIG_NR_CPUS is at most 8192); a larger number is a damaged text.
LARGEST = 65536


def parse(text: str) -> frozenset[int]:
    """The numbers of a list such as `0-3,8` (`0-31:2/4` too: the first two of each four, kernel cpumask format).

    An empty text is the empty set. Raises ValueError for anything else.
    """
    numbers: set[int] = set()
    for part in text.replace(" ", "").strip().split(",") if text.strip() else []:
        match = _PART.match(part)
        if not match:
            raise ValueError(f"expected a list such as 0-3,8, found {text[:60]!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last > LARGEST:
            raise ValueError(f"expected numbers of at most {LARGEST}, found {part!r}")
        if last < first:
            raise ValueError(f"expected an ascending range, found {part!r}")
        used, group = int(match[3] or 1), int(match[4] or 1)
        if used > group or group == 0:
            raise ValueError(f"expected used/group such as 2/4, found {part!r}")
        numbers.update(n for n in range(first, last + 1) if (n - first) % group < used)
    return frozenset(numbers)


def parse_mask(text: str) -> frozenset[int]:
    """The numbers of a hexadecimal mask of 32-bit words, highest word first: `38,00000380` is 7-9,35-37.

    Raises ValueError for anything else.
    """
    words = text.strip().split(",")
    if not all(re.fullmatch(r"(0x)?[0-9a-fA-F]{1,16}", word) for word in words) or len(words) * 32 > LARGEST:
        raise ValueError(f"expected a mask such as ffff,0000ffff, found {text[:60]!r}")
    if len(words) == 1:
        value = int(words[0], 16)
    else:
        if any(len(word) > 8 for word in words):
            raise ValueError(f"expected words of 32 bits, found {text[:60]!r}")
        value = 0
        for word in words:
            value = value << 32 | int(word, 16)
    return frozenset(n for n in range(value.bit_length()) if value >> n & 1)


def render(numbers: Iterable[int]) -> str:
    """The shortest list text of these numbers, ascending: `0-3,8`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
