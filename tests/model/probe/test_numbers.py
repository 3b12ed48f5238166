"""Sizes, series, chance: what the probes count with."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearsocket.model.errors import UsageError
from nearsocket.model.probe import chance, series, sizes
from nearsocket.model.probe.series import FLOOR, Series, compare, compare_all, of_starts
from nearsocket.model.probe.starts import Row
from nearsocket.onhost.probe import pattern
from nearsocket.onhost.probe.rank import summary

TIMES = st.floats(0.5, 1e6)


def row(rank: int = 0, round: int = 0, size: int = 4096, median: float = 10.0, wrong: int = 0) -> Row:
    return Row(rank, round, size, 20, median, 2 * median, median, median, wrong, 3 if wrong else None)


def one(*rounds: float, size: int = 1 << 20, ranks: int = 2) -> Series:
    return Series(size, ranks, rounds, max(rounds))


def test_the_decode_and_the_prefill_size_are_among_those_measured_by_default() -> None:
    assert {sizes.DECODE_BYTES, sizes.PREFILL_BYTES} <= set(sizes.DEFAULT)
    assert (sizes.DEFAULT[0], sizes.DEFAULT[-1]) == (8 << 10, 256 << 20)
    assert list(sizes.DEFAULT) == sorted(set(sizes.DEFAULT))


@pytest.mark.parametrize("text", ["", "12", "12Q", "0", "-4K", "12K,,", "100", "17G", "1e3", "9" * 30])
def test_a_size_that_cannot_be_measured_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(UsageError, match="expected sizes such as"):
        sizes.parse(text)


@given(st.sets(st.integers(1, 1 << 20).map(lambda n: 64 * n), min_size=1, max_size=8))
def test_sizes_come_back_ascending_from_any_order(wanted: set[int]) -> None:
    assert sizes.parse(",".join(map(str, sorted(wanted, reverse=True)))) == tuple(sorted(wanted))


@given(st.sampled_from(sizes.DEFAULT))
def test_a_written_size_is_read_as_the_same(size: int) -> None:
    assert sizes.parse(sizes.render(size).replace(" ", "")) == (size,)


@given(st.integers(2, pattern.MOST_RANKS), st.integers(0, 10_000))
def test_every_partial_sum_of_the_pattern_is_exact_in_bf16(ranks: int, index: int) -> None:
    values = [pattern.value(index, rank) for rank in range(ranks)]
    assert sum(values) == pattern.total(index, ranks) <= 256  # eight bits of precision hold every whole number up to 256


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(2, 16))
def test_data_shifted_by_less_than_a_period_is_wrong_data(index: int, shift: int, ranks: int) -> None:
    assert pattern.total(index, ranks) != pattern.total(index + shift, ranks)


@given(st.lists(TIMES, min_size=1, max_size=50))
def test_the_figures_of_a_rank_lie_within_its_times(times: list[float]) -> None:
    found = summary([time / 1e6 for time in times])
    low, high = round(min(times), 3), round(max(times), 3)
    assert low <= found["min_us"] + 1e-3
    for name in ("median_us", "p99_us", "mean_us"):
        assert low - 2e-3 <= found[name] <= high + 2e-3
    assert found["p99_us"] + 1e-3 >= found["median_us"]


def test_p99_of_a_hundred_times_is_the_ninety_ninth() -> None:
    assert summary([n / 1e6 for n in range(1, 101)])["p99_us"] == 99.0


def test_a_round_is_as_slow_as_its_slowest_rank() -> None:
    (found,) = of_starts([[row(0, 0, median=10), row(1, 0, median=14), row(0, 1, median=12), row(1, 1, median=11, wrong=2)]])
    assert found.rounds_us == (14, 12)
    assert (found.ranks, found.wrong, found.median_us) == (2, 2, 13)


def test_the_rounds_of_several_starts_are_rounds_of_one_series() -> None:
    (found,) = of_starts([[row(median=10)], [row(median=20)]])
    assert found.rounds_us == (10, 20)


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    # 48 MiB between two ranks in 2.3 ms (FIELD_NOTES): 2 (2 - 1) / 2 = 1
    assert one(2300.0, size=48 << 20).bus_gb_s == pytest.approx(21.88, abs=0.01)
    assert one(2300.0, size=48 << 20, ranks=8).bus_gb_s == pytest.approx(21.88 * 1.75, abs=0.02)


@given(st.lists(TIMES, min_size=1, max_size=9))
def test_a_series_never_differs_from_itself(rounds: list[float]) -> None:
    found = compare(one(*rounds), one(*rounds))
    assert not found.exceeds
    assert found.ratio == 1


@given(st.lists(TIMES, min_size=1, max_size=9), st.lists(TIMES, min_size=1, max_size=9))
def test_a_difference_is_the_same_seen_from_either_side(first: list[float], second: list[float]) -> None:
    there, back = compare(one(*first), one(*second)), compare(one(*second), one(*first))
    assert there.noise == back.noise
    assert there.ratio * back.ratio == pytest.approx(1)
    if there.exceeds and back.exceeds:
        assert (there.ratio > 1) != (back.ratio > 1)


@given(st.lists(st.floats(1, 2), min_size=2, max_size=9), st.lists(st.floats(1, 2), min_size=2, max_size=9))
def test_ranges_that_meet_never_differ_beyond_the_noise(first: list[float], second: list[float]) -> None:
    assume(min(first) <= max(second) and min(second) <= max(first))
    assert not compare(one(*first), one(*second)).exceeds


@given(st.floats(1 + 1e-6, 1 + FLOOR - 1e-6), st.floats(1, 1e6))
def test_a_difference_below_the_floor_is_none_however_quiet_the_host(ratio: float, time: float) -> None:
    assert not compare(one(time * ratio, time * ratio), one(time, time)).exceeds


def test_a_far_buffer_stands_out_of_the_noise() -> None:
    found = compare(one(5700, 5800, 6870), one(2300, 2310, 2470))
    assert found.exceeds
    assert found.ratio == pytest.approx(2.51, abs=0.01)


def test_five_rounds_of_the_same_thing_rarely_differ_and_a_tenth_more_mostly_does() -> None:
    chance_of = random.Random(1)

    def run(middle: float, scatter: float) -> Series:
        return one(*(middle * (1 + chance_of.gauss(0, scatter)) for _ in range(5)))

    assert sum(compare(run(100, 0.05), run(100, 0.05)).exceeds for _ in range(5000)) < 25
    assert sum(compare(run(110, 0.02), run(100, 0.02)).exceeds for _ in range(1000)) > 900


def test_only_sizes_that_both_have_are_compared() -> None:
    assert [d.size_bytes for d in compare_all([one(1.0, size=64), one(1.0, size=128)], [one(1.0, size=128)])] == [128]


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share_and_covers_as_it_says(counts: tuple[int, int]) -> None:
    hits, draws = counts
    low, high = chance.interval(hits, draws)
    assert 0 <= low <= hits / draws <= high <= 1
    if low > 0:
        assert chance.at_least(hits, draws, low) == pytest.approx(0.025, abs=1e-6)
    if high < 1:
        assert chance.at_most(hits, draws, high) == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize(("hits", "draws", "low", "high"), [(0, 20, 0.0, 0.1684), (20, 20, 0.8316, 1.0), (7, 20, 0.1539, 0.5922)])
def test_the_interval_is_that_of_the_tables(hits: int, draws: int, low: float, high: float) -> None:
    assert chance.interval(hits, draws) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@given(st.integers(1, 200), st.floats(0, 1))
def test_the_chances_of_all_counts_add_up(draws: int, share: float) -> None:
    assert math.isclose(chance.at_least(0, draws, share), 1, rel_tol=1e-9)


@pytest.mark.parametrize(("hits", "draws"), [(-1, 3), (4, 3), (0, 0)])
def test_an_impossible_count_is_refused(hits: int, draws: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        chance.interval(hits, draws)


@pytest.mark.parametrize(("time", "text"), [(8.314, "8.31 us"), (205, "205 us"), (2304, "2.30 ms"), (50_400, "50.4 ms")])
def test_times_are_written_with_the_digits_that_matter(time: float, text: str) -> None:
    assert series.microseconds(time) == text
