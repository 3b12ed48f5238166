"""Cold prompts against a real HTTP server: what is refused as cached, what ends a run, what two baselines must share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.finding import Status
from nearsocket.model.probe import prefill as judging
from nearsocket.model.probe import thermal
from nearsocket.model.probe.prefill import FIRST, LAST, MIDDLE, Answer, PrefillOrder, Reading
from nearsocket.model.probe.thermal import Heat, Limits
from nearsocket.onhost import apikey
from nearsocket.onhost.probe import prefill
from tests.onhost.probe.engine import Engine, serve

COOL = (Heat("0", 40), Heat("1", 42))


@dataclass
class Clock:
    """A clock that goes on by itself, so that no test waits: each reading takes 10 ms, but for those that are listed."""

    now: float = 0.0
    slow: dict[int, float] = field(default_factory=dict)
    count: int = 0
    slept: float = 0.0

    def __call__(self) -> float:
        self.count += 1
        self.now += self.slow.get(self.count, 0.01)
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds


def order(*urls: str, api: str = "sglang", **changes: object) -> PrefillOrder:
    return replace(PrefillOrder(urls, api, (500, 2000), 2), **changes)  # type: ignore[arg-type]


def measured(asked: PrefillOrder, heat: Callable[[], Sequence[Heat]] = lambda: COOL, clock: Clock | None = None) -> Answer:
    used = clock or Clock()
    return prefill.measure(asked, heat, used, used.sleep)


@pytest.mark.parametrize("api", ["sglang", "openai"])
def test_salted_prompts_of_the_lengths_asked_for_are_accepted(api: str) -> None:
    with serve(Engine()) as url:
        asked = order(url, api=api)
        found = measured(asked)
    assert (found.void, found.aborted) == (None, None)
    assert [one.part for one in found.readings] == [FIRST] * 4 + [LAST] * 4
    for one in found.readings:
        assert one.cached_tokens == 0
        assert abs(one.prompt_tokens - one.length) <= 4
    assert judging.judge("x", asked, found, bound=0.05).status is Status.PASS


def test_a_cached_run_is_void_and_ends_at_once() -> None:
    with serve(Engine(ignores_salt=True)) as url:
        asked = order(url)
        found = measured(asked)
    assert len(found.readings) == 1
    assert "tokens came from the engine's cache" in (found.void or "")
    assert judging.judge("x", asked, found).status is Status.FAIL


@pytest.mark.parametrize("api", ["sglang", "openai"])
def test_an_engine_that_does_not_tell_makes_the_run_void(api: str) -> None:
    with serve(Engine(tells=False)) as url:
        found = measured(order(url, api=api))
    assert "does not tell" in (found.void or "")


def test_a_token_that_every_prompt_shares_is_allowed_only_where_the_user_says_so() -> None:
    with serve(Engine(bos=1)) as url:
        assert "1 of" in (measured(order(url)).void or "")
        assert measured(order(url, most_cached=1)).void is None


def test_two_engines_are_asked_in_turn_and_neither_is_always_first() -> None:
    with serve(Engine()) as one, serve(Engine()) as other:
        asked = order(one, other)
        found = measured(asked)
    turn = [one.engine for one in found.readings if one.part == MIDDLE]
    assert turn == [0, 1, 0, 1, 1, 0, 1, 0]
    assert {one.engine for one in found.readings if one.part != MIDDLE} == {0}
    assert "against" in judging.judge("x", asked, found, bound=0.05).summary


def test_the_guard_waits_until_the_gpus_are_cool() -> None:
    heats: Iterator[Sequence[Heat]] = itertools.chain([(Heat("0", 80),)] * 3, itertools.repeat(COOL))
    clock = Clock()
    with serve(Engine()) as url:
        found = measured(order(url), lambda: next(heats), clock)
    assert (found.aborted, len(found.readings)) == (None, 8)
    assert clock.slept == 6


def test_gpus_that_stay_warm_end_the_wait_and_no_prompt_is_sent() -> None:
    engine = Engine()
    with serve(engine) as url:
        found = measured(order(url, limits=Limits(wait_s=10)), lambda: (Heat("0", 80),))
    assert "GPU 0 has 80 C, expected at most 65 C to begin, after 10 s" in (found.aborted or "")
    assert engine.seen == []


@pytest.mark.parametrize(
    ("heat", "said"),
    [(Heat("1", 91), "GPU 1 has 91 C"), (Heat("1", 60, ("hw-thermal-slowdown",)), "slows down (hw-thermal-slowdown) at 60 C")],
)
def test_the_guard_aborts_a_run_and_what_was_read_proves_nothing(heat: Heat, said: str) -> None:
    heats: Iterator[Sequence[Heat]] = itertools.chain([COOL] * 4, itertools.repeat((COOL[0], heat)))
    with serve(Engine()) as url:
        asked = order(url)
        found = measured(asked, lambda: next(heats))
    assert said in (found.aborted or "")
    assert 0 < len(found.readings) < 8
    assert judging.judge("x", asked, found).status is Status.UNKNOWN


def test_without_a_guard_nobody_asks_nvml() -> None:
    with serve(Engine()) as url:
        assert measured(order(url, limits=None), lambda: pytest.fail("asked")).aborted is None


def test_a_run_ends_at_its_time_limit() -> None:
    with serve(Engine()) as url:
        found = measured(order(url, whole_s=0.08))
    assert "not done within 0.08 s" in (found.aborted or "")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (Engine(status=503, body=b"busy"), "to answer 200, found 503: busy"),
        (Engine(body=b"<html>"), "to answer JSON, found other text"),
        (Engine(body=b"{}"), "expected the answer to tell its prompt's tokens"),
        (Engine(body=b"[1]"), "expected the answer to tell its prompt's tokens"),
        (Engine(body=b'{"meta_info": {"prompt_tokens": true}}'), "expected the answer to tell its prompt's tokens"),
    ],
)
def test_an_engine_that_answers_otherwise_is_one_line(engine: Engine, said: str) -> None:
    with serve(engine) as url, pytest.raises(NearsocketError) as caught:
        measured(order(url))
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_no_engine_is_one_line() -> None:
    with serve(Engine()) as url:
        pass
    with pytest.raises(NearsocketError, match="expected an answer to POST /generate"):
        measured(order(url))


@pytest.mark.parametrize("url", ["https://h", "file:///etc/passwd", "h:1", ""])
def test_what_is_no_http_address_is_wrong_usage(url: str) -> None:
    with pytest.raises(UsageError, match="expected an http address"):
        measured(order(url))


def answer(*speeds: tuple[str, int, float]) -> Answer:
    """Readings of 1000 tokens: part, engine, tokens a second."""
    return Answer(tuple(Reading(engine, part, 1000, 1000, 0, 1000 / speed) for part, engine, speed in speeds))


def judged(found: Answer, *urls: str, bound: float = 0.005) -> tuple[Status, str]:
    finding = judging.judge("x", PrefillOrder(urls or ("http://a",), "sglang", (1000,)), found, bound)
    return finding.status, finding.summary


def test_baselines_within_the_bound_pass_and_beyond_it_conclude_nothing() -> None:
    assert judged(answer((FIRST, 0, 6000), (LAST, 0, 6029))) == (Status.PASS, "1,000 tokens: 6,014 tok/s")
    status, summary = judged(answer((FIRST, 0, 6000), (LAST, 0, 6031)))
    assert status is Status.UNKNOWN
    assert "6,000 and 6,031 tok/s, 0.52 % apart" in summary


def test_a_comparison_is_of_the_prompts_in_turn_alone() -> None:
    found = answer((FIRST, 0, 6000), (MIDDLE, 0, 6000), (MIDDLE, 1, 4200), (LAST, 0, 6000))
    assert judged(found, "http://a", "http://b") == (Status.PASS, "1,000 tokens: 6,000 against 4,200 tok/s, -30.0 %")


def test_a_missing_baseline_concludes_nothing() -> None:
    assert judged(answer((FIRST, 0, 6000)))[0] is Status.UNKNOWN


@given(st.lists(st.tuples(st.sampled_from([FIRST, MIDDLE, LAST]), st.sampled_from([0, 1]), st.floats(0.1, 1e5)), max_size=12))
def test_no_set_of_readings_makes_the_judge_fail(speeds: list[tuple[str, int, float]]) -> None:
    status, summary = judged(answer(*speeds), "http://a", "http://b")
    assert status in (Status.PASS, Status.UNKNOWN)
    assert summary


def test_orders_and_answers_come_back_from_their_text_whole() -> None:
    for asked in (order("http://a"), order("http://a", "http://b", limits=None)):
        assert judging.order_from_json(asked.to_json().decode()) == asked
    found = replace(answer((FIRST, 0, 6000)), void="cached")
    assert judging.answer_from_json(found.to_json().decode()) == found


@given(st.lists(st.integers(0, 110), min_size=1, max_size=8))
def test_the_guard_lets_begin_only_what_it_would_not_end(temperatures: list[int]) -> None:
    heat = [Heat(str(number), celsius) for number, celsius in enumerate(temperatures)]
    if thermal.too_warm_to_start(heat, Limits()) is None:
        assert thermal.must_end(heat, Limits()) is None


@pytest.mark.parametrize("api", ["sglang", "openai"])
def test_an_engine_that_wants_a_key_gets_it_from_its_file(tmp_path: Path, api: str) -> None:
    file = tmp_path / "key"
    file.write_text("sk-right\n")
    with serve(Engine(key="sk-right")) as url:
        found = measured(order(url, api=api, key_files=(str(file),)))
    assert (found.void, found.aborted, len(found.readings)) == (None, None, 8)


def test_each_engine_gets_its_own_key_and_one_without_a_file_gets_none(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-right")
    with serve(Engine(key="sk-right")) as url, serve(Engine()) as open_:
        assert measured(order(url, open_, key_files=(str(file), None))).void is None
        with pytest.raises(NearsocketError, match="found 401") as refused:
            measured(order(url, open_, key_files=(None, str(file))))
    assert "--api-key-file" in str(refused.value.hint)


def test_a_key_that_the_engine_says_back_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-wrong-and-secret")
    with serve(Engine(key="sk-right")) as url, pytest.raises(NearsocketError) as refused:
        measured(order(url, key_files=(str(file),)))
    assert "(the key) is not the key" in refused.value.message
    assert "secret" not in repr(refused.value)


@pytest.mark.parametrize("content", [b"", b"two words", b"sk\nx: y", b"\xff", b"k" * 5000, None])
def test_a_file_that_holds_no_key_is_named_and_nothing_of_it_is_shown(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(NearsocketError) as refused:
        apikey.load(file)
    assert str(file) in refused.value.message
    assert "two words" not in refused.value.message


def test_a_link_to_a_key_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("sk")
    (tmp_path / "key").symlink_to(tmp_path / "real")
    with pytest.raises(NearsocketError, match="expected to read the engine's key"):
        apikey.load(tmp_path / "key")
