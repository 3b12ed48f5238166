"""A baseline: what makes its key, and what is slower than it beyond the noise."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Status
from nearsocket.model.probe import baseline, path
from nearsocket.model.probe.baseline import Baseline
from tests.model.probe.figures import KEY, series


def test_a_new_key_has_no_baseline_and_judges_nothing() -> None:
    found = baseline.judge("x", KEY, [series(10.0)], None)
    assert found.status is Status.NOT_APPLICABLE
    assert found.summary.startswith("no baseline")


@pytest.mark.parametrize(
    ("times", "status"),
    [
        ((10.0, 10.1, 10.2), Status.PASS),
        ((10.9, 10.9, 10.9), Status.PASS),
        ((11.5, 11.5, 11.6), Status.WARN),
        ((24.0, 24.1, 24.2), Status.FAIL),
        ((5.0, 5.1, 5.2), Status.PASS),
        ((9.0, 13.0, 30.0), Status.PASS),
    ],
)
def test_slower_than_the_baseline_beyond_the_noise_is_what_fails(times: tuple[float, ...], status: Status) -> None:
    known = Baseline(KEY, "2026-01-01T00:00:00Z", (series(10.0, 10.1, 10.2),))
    assert baseline.judge("x", KEY, [series(*times)], known).status is status


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=5), st.text(max_size=8), st.text(max_size=8))
def test_a_baseline_comes_back_from_its_text_whole(rounds: list[float], driver: str, image: str) -> None:
    key = dataclasses.replace(KEY, driver=driver, image=image)
    made = Baseline(key, "2026-01-01T00:00:00Z", (series(*rounds),))
    assert baseline.from_json(made.to_json()) == made


@pytest.mark.parametrize("part", ["fingerprint", "driver", "nccl", "image", "backend"])
def test_each_part_of_the_key_makes_another_key(part: str) -> None:
    assert dataclasses.replace(KEY, **{part: "other"}).digest != KEY.digest


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "nearsocket.baseline/2"}', '{"schema": "nearsocket.baseline/1"}'])
def test_what_is_no_baseline_is_one_line_of_error(text: str) -> None:
    with pytest.raises(NearsocketError, match=r"expected nearsocket\.baseline/1"):
        baseline.from_json(text)


def test_other_variables_have_a_baseline_of_their_own() -> None:
    facts = {0: {"nccl": "2.30.7"}}
    keys = [
        baseline.key("sha256:ab", "595", "image", "nccl", (), path.environment_digest(variables), facts)
        for variables in ({}, {"NCCL_PROTO": "LL"}, {"NCCL_PROTO": "LL128"}, {"NCCL_DEBUG": "INFO"})
    ]
    digests = [key.digest for key in keys if key is not None]
    assert len(digests) == 4
    assert digests[0] == digests[3], "what is logged makes no other figures"
    assert len(set(digests)) == 3
