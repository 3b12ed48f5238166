"""Cold prompts against a running engine over HTTP, one at a time, guarded by the GPUs' temperatures."""

from __future__ import annotations

import http.client
import json
import random
import secrets
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import prefill, thermal
from nearsocket.model.probe.prefill import FIRST, LAST, MIDDLE, Answer, PrefillOrder, Reading
from nearsocket.model.probe.thermal import Heat
from nearsocket.model.text import fault, one_line
from nearsocket.onhost import apikey
from nearsocket.onhost.probe.heat import read_heat

_LARGEST_ANSWER = 4 << 20
_PAUSE_S = 2.0
#: Words of the prompt that tells how many tokens a word is.
_TRY_WORDS = 400
#: Words are made of these: four letters that no tokenizer has as one piece for all of them.
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
ReadHeat = Callable[[], Sequence[Heat]]


def run(text: str) -> bytes:
    """Carry the order out; the answer's line. Raises NearsocketError where no engine answers as it should."""
    return measure(prefill.order_from_json(text)).to_json()


@dataclass
class _Ended(Exception):
    """Why the run ends now: `void` or not."""

    reason: str
    void: bool


def measure(
    order: PrefillOrder,
    heat: ReadHeat = read_heat,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """Warm up, first baseline, both engines in turn, second baseline. Ends early at the first cached prompt or too warm a GPU.

    Raises NearsocketError where no engine answers as it should, or its key cannot be read.
    """
    files = (*order.key_files, *[None] * len(order.urls))
    keys = [apikey.load(Path(file)) if file else None for file in files[: len(order.urls)]]
    end = clock() + order.whole_s
    readings: list[Reading] = []
    try:
        _cool_down(order, heat, clock, sleep, end)
        engines = [_Engine(url, order, clock, key) for url, key in zip(order.urls, keys)]
        for one in engines:
            one.learn()
        for part, number, length in _turns(order):
            _keep_cool(order, heat)
            if clock() >= end:
                raise _Ended(f"not done within {order.whole_s:g} s", void=False)
            readings.append(engines[number].read(number, part, length))
            why = prefill.cached(readings[-1].prompt_tokens, readings[-1].cached_tokens, order.most_cached)
            if why is not None:
                raise _Ended(why, void=True)
        _keep_cool(order, heat)
    except _Ended as ended:
        return Answer(tuple(readings), ended.reason if ended.void else None, None if ended.void else ended.reason)
    return Answer(tuple(readings))


def _turns(order: PrefillOrder) -> Iterator[tuple[str, int, int]]:
    """Part, engine and length of each prompt. In turn means A B, then B A, so that neither is always first."""
    once = [length for _ in range(order.repeat) for length in order.lengths]
    yield from ((FIRST, 0, length) for length in once)
    if len(order.urls) > 1:
        for at, length in enumerate(once):
            pair = (0, 1) if (at // len(order.lengths)) % 2 == 0 else (1, 0)
            yield from ((MIDDLE, number, length) for number in pair)
    yield from ((LAST, 0, length) for length in once)


def _cool_down(order: PrefillOrder, heat: ReadHeat, clock: Callable[[], float], sleep: Callable[[float], None], end: float) -> None:
    if order.limits is None:
        return
    until = min(end, clock() + order.limits.wait_s)
    while True:
        warm = thermal.too_warm_to_start(heat(), order.limits)
        if warm is None:
            return
        if clock() >= until:
            raise _Ended(f"{warm}, after {order.limits.wait_s:g} s", void=False)
        sleep(_PAUSE_S)


def _keep_cool(order: PrefillOrder, heat: ReadHeat) -> None:
    reason = thermal.must_end(heat(), order.limits) if order.limits is not None else None
    if reason is not None:
        raise _Ended(reason, void=False)


@dataclass
class _Engine:
    """One engine behind its address."""

    url: str
    order: PrefillOrder
    clock: Callable[[], float]
    key: Optional[str] = field(default=None, repr=False)
    tokens_a_word: float = 1.0
    model: str = ""
    random: random.Random = field(default_factory=random.SystemRandom)

    def learn(self) -> None:
        """The model's name where the API wants it, and how many tokens a word is; the engine is warm then."""
        if self.order.api == "openai":
            listed = self._ask("GET", "/v1/models", None)
            try:
                self.model = str(listed["data"][0]["id"])
            except (KeyError, IndexError, TypeError):
                raise NearsocketError(f"{self.url}: expected /v1/models to list a model, found none") from None
        tokens, _, _ = self._prompt(_TRY_WORDS)
        self.tokens_a_word = max(tokens / _TRY_WORDS, 0.1)

    def read(self, number: int, part: str, length: int) -> Reading:
        """One cold prompt of about that many tokens."""
        tokens, cached, seconds = self._prompt(max(1, round(length / self.tokens_a_word)))
        return Reading(number, part, length, tokens, cached, round(seconds, 6))

    def _prompt(self, words: int) -> tuple[int, Optional[int], float]:
        """Salt first, so that no prefix was ever seen; then words at random."""
        text = f"{secrets.token_hex(8)} " + " ".join(self._word() for _ in range(words))
        began = self.clock()
        if self.order.api == "sglang":
            answer = self._ask("POST", "/generate", {"text": text, "sampling_params": {"max_new_tokens": 1, "temperature": 0}})
            told = answer.get("meta_info") if isinstance(answer, dict) else None
            cached = told.get("cached_tokens") if isinstance(told, dict) else None
        else:
            body = {"model": self.model, "prompt": text, "max_tokens": 1, "temperature": 0}
            answer = self._ask("POST", "/v1/completions", body)
            told = answer.get("usage") if isinstance(answer, dict) else None
            details = told.get("prompt_tokens_details") if isinstance(told, dict) else None
            cached = details.get("cached_tokens") if isinstance(details, dict) else None
        seconds = self.clock() - began
        tokens = told.get("prompt_tokens") if isinstance(told, dict) else None
        if type(tokens) is not int or tokens < 1:
            raise NearsocketError(
                f"{self.url}: expected the answer to tell its prompt's tokens, found {self._shown(str(answer), 80)!r}"
            )
        return tokens, cached if type(cached) is int else None, seconds

    def _word(self) -> str:
        pick = self.random.choice
        return pick(_CONSONANTS) + pick(_VOWELS) + pick(_CONSONANTS) + pick(_VOWELS)

    def _shown(self, text: str, limit: int) -> str:
        """What the engine said, without the key: an engine may say it back."""
        return one_line(text.replace(self.key, "(the key)") if self.key else text, limit)

    def _ask(self, method: str, path: str, body: Optional[dict[str, Any]]) -> Any:
        """The answer's JSON. Raises NearsocketError, UsageError."""
        prefill.insist_on_http(self.url)
        parts = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=self.order.request_s)
        try:
            headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
            data = None if body is None else json.dumps(body).encode("ascii")
            connection.request(method, parts.path.rstrip("/") + path, data, headers)
            answer = connection.getresponse()
            text = answer.read(_LARGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise NearsocketError(
                f"{one_line(self.url, 80)}: expected an answer to {method} {path}, found: {fault(error, 100)}"
            ) from None
        finally:
            connection.close()
        if answer.status != 200:
            said = self._shown(text.decode("utf-8", "replace"), 120)
            raise NearsocketError(
                f"{one_line(self.url, 80)}: expected {path} to answer 200, found {answer.status}: {said}",
                "an engine that wants a key: --api-key-file FILE, or verify.api_key in the fleet file"
                if answer.status in (401, 403)
                else None,
            )
        try:
            return json.loads(text)
        except ValueError:
            raise NearsocketError(f"{one_line(self.url, 80)}: expected {path} to answer JSON, found other text") from None
