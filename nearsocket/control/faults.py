"""The first fault of what a person wrote in an inventory, as one line in YAML's words, not Python's."""

from __future__ import annotations

import datetime
import difflib
import json
import re
import typing
from collections.abc import Iterable
from typing import Any

import pydantic
from pydantic import BaseModel

from nearsocket.model.text import one_line

#: pydantic's types of faults to what was expected.
_EXPECTED = {
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "invalid_key": "a text as the key",
}
_SECRET_KEYS = ("password", "ssh_password", "ssh_key_password", "sudo_password", "_sudo_password")
_KEYS_ALONE = (
    "expected no password in a fleet file, which is kept and shared; "
    "log in with a key (ssh_key, the agent), sudo's is NEARSOCKET_SUDO_PASSWORD or --ask-sudo-password"
)


def worst(error: pydantic.ValidationError) -> Any:
    """The fault to tell of: an unknown key first, since it is often why another one is missing.

    A mapping that may be a boolean too was meant as the mapping.
    """
    faults = error.errors(include_url=False)
    unknown = (fault for fault in faults if fault["type"] == "extra_forbidden")
    meant = (fault for fault in faults if not (_or_mapping(fault) and isinstance(fault["input"], dict)))
    return next(unknown, None) or next(meant, faults[0])


def _or_mapping(fault: Any) -> bool:
    """Whether it is the boolean's part of a key that takes a boolean or a mapping."""
    return bool(fault["loc"]) and fault["loc"][-1] == "bool"


def say(fault: Any, root: type[BaseModel]) -> str:
    """One of pydantic's faults as a line: where, what was expected, what was found, what may have been meant."""
    steps = [step for step in fault["loc"] if step not in ("bool", "SudoEntry") and "[" not in str(step)]
    place = ".".join(str(step) for step in steps) or "the file"
    if fault["type"] == "extra_forbidden":
        if steps[-1] in _SECRET_KEYS:
            return f"{place}: {_KEYS_ALONE}"
        known = sorted(_keys(root, steps[:-1]))
        close = difflib.get_close_matches(str(steps[-1]), known, 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        return f"{place}: expected one of {', '.join(known)}, found {one_line(str(steps[-1]), 80)!r}{meant}"
    if fault["type"] == "missing":
        return f"expected {steps[-1]!r} in {'.'.join(str(step) for step in steps[:-1]) or 'the file'}, found none"
    secret = any(word in str(step) for step in steps for word in ("password", "secrets", "environment"))
    found = "something else (not shown)" if secret else shown(fault.get("input"))
    return f"{place}: {_expected(fault)}, found {found}"


def shown(value: object) -> str:
    """A value as YAML has it, on one short line."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, dict | list):
        try:
            return one_line(json.dumps(value, ensure_ascii=False, default=str, skipkeys=True), 80)
        except (ValueError, RecursionError):  # one that holds itself
            return kind(value)
    return one_line(repr(value), 80)


def kind(value: object) -> str:
    """What kind of thing YAML has there."""
    if value is None:
        return "nothing"
    kinds = ((dict, "a mapping"), (list, "a list"), (str, "a text"), (bool, "true or false"), (int | float, "a number"))
    return next((word for type_, word in kinds if isinstance(value, type_)), "something else")


def _expected(fault: Any) -> str:
    """What was expected there, in this project's form."""
    if _or_mapping(fault):
        return "expected true, false or a mapping"
    if fault["type"] in _EXPECTED:
        return f"expected {_EXPECTED[fault['type']]}"
    if fault["type"] == "too_short":
        least = fault["ctx"]["min_length"]
        return f"expected at least {'one' if least == 1 else least}"
    message = fault["msg"].removeprefix("Value error, ").partition(", found")[0]
    return one_line(re.sub(r"^\w+ should (be|have|match) ", r"expected to \1 ", message), 200)


def _keys(root: type[BaseModel], steps: Iterable[Any]) -> Iterable[str]:
    """The keys that are known at that place."""
    model, skip = root, False
    for step in steps:
        if skip or isinstance(step, int):
            skip = False  # a place in a list, or the free key of a mapping such as `groups`
            continue
        found = model.model_fields.get(step)
        inner = _model_in(found.annotation) if found is not None else None
        if found is None or inner is None:
            return ()
        model, skip = inner, "dict[" in str(found.annotation)
    return model.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside a type such as `tuple[Model, ...] | None`; None where there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(part) for part in typing.get_args(annotation))
    return next((model for model in inner if model is not None), None)
