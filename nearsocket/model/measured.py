"""What a probe measured, as a report shows it: read from a saved `nearsocket.probe/1`. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Optional

from nearsocket.model.errors import UsageError

SCHEMA = "nearsocket.probe/1"
#: More of one kind is no probe's.
_MOST = 10_000
#: Where a draw's buffers can lie, as the probe's words say it.
PLACES = ("near", "far", "split", "no host buffers", "unknown")


@dataclass(frozen=True)
class Point:
    """One size of an all-reduce: bytes, and microseconds at the median and at the 99th percentile."""

    size_bytes: int
    median_us: float
    p99_us: float


@dataclass(frozen=True)
class Curve:
    """The sizes of one setting, the smallest first; or, with the time that it was kept, those of the host's baseline."""

    name: str
    points: tuple[Point, ...]
    kept_at: Optional[str] = None


@dataclass(frozen=True)
class Draw:
    """One start of a restart lottery; `where` is one of PLACES. `failed` says why it did not end well, None where it did."""

    name: str
    where: str
    failed: Optional[str]


@dataclass(frozen=True)
class Prompt:
    """One prompt: which engine read it (0 or 1), its length in tokens as asked for, tokens a second."""

    engine: int
    length: int
    tokens_s: float


@dataclass(frozen=True)
class Measured:
    """One probe of one host."""

    host: str
    subject: str
    kind: str
    curves: tuple[Curve, ...]
    draws: tuple[Draw, ...]
    prompts: tuple[Prompt, ...]


def from_json(text: str) -> tuple[Measured, ...]:
    """The probes of a `nearsocket.probe/1`. Raises UsageError, one line, for anything else."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"expected the JSON of a probe ({SCHEMA}), found text that is not JSON ({error})") from None
    schema = whole.get("schema") if isinstance(whole, dict) else None
    if schema != SCHEMA:
        hint = "name a file that nearsocket probe --json wrote, or measure again with this version"
        raise UsageError(f"expected schema {SCHEMA}, found {str(schema)[:80]!r}", hint)
    try:
        return tuple(_probe(probe) for probe in _few(whole["probes"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"expected a probe ({SCHEMA}), found one that lacks or misspells something: {error!r:.100}") from None


def _probe(probe: Any) -> Measured:
    return Measured(
        _text(probe["host"]),
        _text(probe["subject"]),
        _text(probe["kind"]),
        (*(_curve(one) for one in _few(probe["measured"])), *_baseline(probe["baseline"])),
        tuple(_draw(one) for one in _few(probe["draws"])),
        tuple(Prompt(int(_number(p["engine"])), int(_number(p["length"])), _number(p["tokens_s"])) for p in _few(probe["prompts"])),
    )


def _curve(curve: Any) -> Curve:
    points = (Point(int(_number(p["size_bytes"])), _number(p["median_us"]), _number(p["p99_us"])) for p in _few(curve["sizes"]))
    drawable = (point for point in points if point.size_bytes and point.median_us)  # what took no time was not measured
    return Curve(_text(curve["name"]), tuple(sorted(drawable, key=lambda point: point.size_bytes)))


def _baseline(known: Any) -> tuple[Curve, ...]:
    """The host's own earlier figures as one more curve; none where it keeps none."""
    if known is None:
        return ()
    curve = _curve({"name": "baseline", "sizes": known["sizes"]})
    return (replace(curve, kept_at=_text(known["kept_at"])),)


def _draw(draw: Any) -> Draw:
    if draw["where"] not in PLACES:
        raise ValueError(f"where: {draw['where']!r}")
    return Draw(_text(draw["name"]), draw["where"], None if draw["failed"] is None else _text(draw["failed"]))


def _few(values: Any) -> Iterable[Any]:
    if not isinstance(values, list) or len(values) > _MOST:
        raise TypeError(f"a list of at most {_MOST}")
    return values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _number(value: Any) -> float:
    """A number that is not below zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError("a number that is not below zero")
    return float(value)
