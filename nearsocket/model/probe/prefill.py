"""What reading a prompt costs: cold prompts against a running engine, and whether their figures mean anything. Pure."""

from __future__ import annotations

import dataclasses
import json
import statistics
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.finding import Evidence, Finding, failed, passed, unknown
from nearsocket.model.probe import order
from nearsocket.model.probe.thermal import DEFAULT_LIMITS, Limits
from nearsocket.model.text import one_line

ORDER, ANSWER = "nearsocket.prefill-order/1", "nearsocket.prefill/1"
FIRST, MIDDLE, LAST = "first baseline", "in turn", "second baseline"


@dataclass(frozen=True)
class PrefillOrder:
    """What to ask. `urls`: one engine, or two to compare (the first is the baseline); `api`: `sglang` or `openai`; `lengths` in
    tokens; `repeat`: prompts of each length in each part; `most_cached`: tokens that may come from the cache (a BOS token is the
    same in every prompt); `request_s`, `whole_s`: time limits in seconds; `limits`: the GPUs' temperatures (None: no guard);
    `key_files`: for each engine the file on its host that has the key it wants (None: it wants none).
    """

    urls: tuple[str, ...]
    api: str
    lengths: tuple[int, ...]
    repeat: int = 5
    most_cached: int = 0
    request_s: float = 120.0
    whole_s: float = 1800.0
    limits: Optional[Limits] = DEFAULT_LIMITS
    key_files: tuple[Optional[str], ...] = ()

    def to_json(self) -> bytes:
        """One line."""
        return order.to_line({"schema": ORDER, **dataclasses.asdict(self)})


def order_from_json(text: str) -> PrefillOrder:
    """The order that `to_json` wrote. Raises NearsocketError for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value.pop("schema") != ORDER:
            raise NearsocketError(f"expected {ORDER}, found another schema")
        limits = value.pop("limits")
        value.update(urls=tuple(value["urls"]), lengths=tuple(value["lengths"]), key_files=tuple(value["key_files"]))
        return PrefillOrder(**value, limits=Limits(**limits) if limits is not None else None)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {ORDER}, found: {one_line(str(error), 100)}") from None


@dataclass(frozen=True)
class Reading:
    """One prompt. `engine`: 0 or 1, as the urls; `part`: which of the three; `length`: the tokens that were meant; `cached_tokens`
    None where the engine does not tell.
    """

    engine: int
    part: str
    length: int
    prompt_tokens: int
    cached_tokens: Optional[int]
    seconds: float

    @property
    def tokens_s(self) -> float:
        """Tokens of the prompt a second."""
        return self.prompt_tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Answer:
    """What was read. `void`: why the run proves nothing (a cached prompt); `aborted`: why it was ended early."""

    readings: tuple[Reading, ...] = ()
    void: Optional[str] = None
    aborted: Optional[str] = None

    def to_json(self) -> bytes:
        """One line."""
        return order.to_line({"schema": ANSWER, **dataclasses.asdict(self)})


def answer_from_json(text: str) -> Answer:
    """The answer that `to_json` wrote. Raises NearsocketError for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value.pop("schema") != ANSWER:
            raise NearsocketError(f"expected {ANSWER}, found another schema")
        return Answer(tuple(Reading(**one) for one in value["readings"]), value["void"], value["aborted"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {ANSWER}, found: {one_line(str(error), 100)}") from None


def insist_on_http(url: str) -> None:
    """Raises UsageError for what is no http address."""
    try:
        parts = urllib.parse.urlsplit(url)
        good = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"expected an http address such as http://127.0.0.1:30000, found {one_line(url, 80)!r}")


def cached(prompt_tokens: int, cached_tokens: Optional[int], most: int) -> Optional[str]:
    """Why a prompt was not cold; None where the engine says that it was."""
    if cached_tokens is None:
        return "the engine does not tell how many tokens came from its cache (SGLang: --enable-cache-report for the OpenAI API)"
    if cached_tokens > most:
        return f"{cached_tokens:,} of {prompt_tokens:,} tokens came from the engine's cache, expected at most {most}"
    return None


@dataclass(frozen=True)
class Speed:
    """Tokens a second of some prompts: median, least, most."""

    median: float
    least: float
    most: float
    prompts: int

    @property
    def words(self) -> str:
        """`6,009 tok/s (5,990 to 6,021, 5 prompts)`."""
        return f"{self.median:,.0f} tok/s ({self.least:,.0f} to {self.most:,.0f}, {self.prompts} prompts)"


def speed(readings: Sequence[Reading]) -> Optional[Speed]:
    """None without a prompt."""
    found = [one.tokens_s for one in readings]
    return Speed(statistics.median(found), min(found), max(found), len(found)) if found else None


def judge(subject: str, asked: PrefillOrder, found: Answer, bound: float = 0.005) -> Finding:
    """`probe.prefill`: void where a prompt was cached, unknown where the two baselines differ by more than `bound` (a share)."""
    shown = _evidence(asked, found)
    if found.void is not None:
        return failed(subject, f"void: {found.void}", shown or (Evidence("engine", found.void),), _COLD)
    if found.aborted is not None:
        return unknown(subject, f"ended early: {found.aborted}", shown, "let the GPUs cool, and run it again")
    apart = []
    for length in asked.lengths:
        mine = [one for one in found.readings if one.engine == 0 and one.length == length]
        first, last = (speed([one for one in mine if one.part == part]) for part in (FIRST, LAST))
        if first is None or last is None:
            return unknown(subject, f"{length:,} tokens: a baseline is missing", shown)
        drift = abs(last.median - first.median) / first.median if first.median else 1.0
        if drift > bound:
            apart.append(f"{length:,} tokens: {first.median:,.0f} and {last.median:,.0f} tok/s, {100 * drift:.2f} % apart")
    if apart:
        summary = f"not steady: the two baselines differ by more than {100 * bound:g} % ({apart[0]})"
        return unknown(subject, summary, shown, "keep other load off the engine; more prompts (--repeat) or a wider --bound")
    return passed(subject, "; ".join(_result(asked, found, length) for length in asked.lengths), shown)


_COLD = "the prompts are salted: look for a proxy that caches, or allow the tokens that every prompt shares: --cached-at-most N"


def _result(asked: PrefillOrder, found: Answer, length: int) -> str:
    sides = []
    for engine in range(len(asked.urls)):
        parts = (MIDDLE,) if len(asked.urls) > 1 else (FIRST, LAST)
        some = [one for one in found.readings if one.engine == engine and one.length == length and one.part in parts]
        sides.append(speed(some))
    if len(sides) == 1 and sides[0] is not None:
        return f"{length:,} tokens: {sides[0].median:,.0f} tok/s"
    one, other = sides[0], sides[-1]
    if one is None or other is None or not one.median:
        return f"{length:,} tokens: not measured"
    return f"{length:,} tokens: {one.median:,.0f} against {other.median:,.0f} tok/s, {100 * (other.median / one.median - 1):+.1f} %"


def _evidence(asked: PrefillOrder, found: Answer) -> tuple[Evidence, ...]:
    lines = []
    for length in asked.lengths:
        for part in (FIRST, MIDDLE, LAST):
            for engine, url in enumerate(asked.urls):
                some = speed([o for o in found.readings if (o.engine, o.part, o.length) == (engine, part, length)])
                if some is not None:
                    lines.append(Evidence(one_line(url, 100), f"{part}, {length:,} tokens: {some.words}, none from the cache"))
    return tuple(lines)
