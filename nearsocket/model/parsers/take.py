"""Values out of a snapshot's raw data, which may hold anything: each function gives the asked type or None, never raises."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Optional

from nearsocket.model import cpulist

#: Above this a size, a count or an identifier is a damaged value (2^62: no machine has that many bytes).
LARGEST = 1 << 62
_WHOLE = re.compile(r"-?[0-9]{1,19}")


def number(value: Any, lowest: int = 0) -> Optional[int]:
    """A whole number of at least `lowest`, from a number or a decimal text."""
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= LARGEST:
        return value
    return None


def text(value: Any) -> Optional[str]:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def word(value: Any) -> str:
    """A text, empty where it is anything else."""
    return value if isinstance(value, str) else ""


def flag(value: Any) -> Optional[bool]:
    """True or false."""
    return value if isinstance(value, bool) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """A map, empty where it is anything else."""
    return value if isinstance(value, dict) else {}


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list; other members are left out."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def text_map(value: Any) -> Mapping[str, str]:
    """The members of a map whose values are texts."""
    return {key: item for key, item in mapping(value).items() if isinstance(item, str)}


def maps(value: Any) -> tuple[Mapping[str, Any], ...]:
    """The maps of a list; other members are left out."""
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def numbers(value: Any, lowest: int = 0) -> tuple[int, ...]:
    """The whole numbers of a list."""
    found = [number(item, lowest) for item in value] if isinstance(value, list) else []
    return tuple(item for item in found if item is not None)


def cpus(value: Any) -> Optional[frozenset[int]]:
    """The numbers of a list text such as `0-11,24-35`; an empty text is the empty set."""
    if not isinstance(value, str):
        return None
    try:
        return cpulist.parse(value)
    except ValueError:
        return None
