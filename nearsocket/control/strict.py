"""What all models of fleet files share: mappings that know their keys, lines of text, sizes and times with units."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def _printable(text: str) -> str:
    """One line; the line feed that YAML's block texts end with is none of it."""
    text = text.rstrip("\n")
    if not text or not text.isprintable():
        raise ValueError("expected one line of printable text")
    return text


Line = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_printable)]


def no_boolean(expected: str) -> BeforeValidator:
    """Python takes true for 1; a person who wrote true meant something else."""

    def check(value: object) -> object:
        if isinstance(value, bool):
            raise ValueError(f"expected {expected}")
        return value

    return BeforeValidator(check)


Whole = Annotated[int, no_boolean("a whole number")]
Number = Annotated[float, no_boolean("a number"), Field(allow_inf_nan=False)]


class Strict(BaseModel):
    """A mapping that knows its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


def _size(value: object) -> object:
    """Bytes of `16GiB`, `512 MiB` or a plain number."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", value.strip())
    if not match or match[2].lower() not in _UNITS:
        raise ValueError("expected a size such as 16GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _time(value: object) -> object:
    """Seconds of `30m`, `90s`, `1h` or a plain number."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"([0-9]+)\s*([smh]?)", value.strip())
    if not match:
        raise ValueError("expected a time such as 30m, 90s or 1h")
    return int(match[1]) * _SECONDS[match[2]]


Size = Annotated[int, no_boolean("a size such as 16GiB"), BeforeValidator(_size), Field(ge=1, le=1 << 50)]
Seconds = Annotated[int, no_boolean("a time such as 30m, 90s or 1h"), BeforeValidator(_time), Field(ge=1, le=86400)]
