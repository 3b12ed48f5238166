"""The tables that people read: what stands in a line, what is marked, what did not run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.probe.planning import CONFIGURED, FAR, NEAR
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.probe.series import Series
from nearsocket.report import probe


def one(size: int, *rounds: float, wrong: int = 0) -> Series:
    return Series(size, 2, rounds, max(rounds), wrong)


def test_a_size_shows_time_bandwidth_and_spread() -> None:
    head, line = probe.sizes([one(48 << 20, 2300.0, 2310.0, 2320.0)])
    assert head.split()[:2] == ["size", "median"]
    assert line.split() == ["48", "MiB", "2.31", "ms", "2.32", "ms", "21.79", "3", "0.9", "%"]


def test_wrong_elements_stand_in_their_line() -> None:
    *_, line = probe.sizes([one(4096, 1.0, wrong=1234)])
    assert line.endswith("1,234 WRONG")


def test_a_sweep_marks_what_differs_and_says_what_did_not_run() -> None:
    table = {
        CONFIGURED: (one(4096, 20.0, 20.1), one(8192, 20.0, 20.1)),
        "A=1": (one(4096, 10.0, 10.1), one(8192, 40.0, 40.1)),
        "A=2": (one(4096, 20.0, 20.1),),
    }
    lines = list(probe.sweep(table))
    assert lines[:3] == ["[0] as configured", "[1] A=1", "[2] A=2"]
    assert lines[-2].split() == ["4", "KiB", "20.1", "us", "10.1", "us+", "20.1", "us"]
    assert lines[-1].split() == ["8", "KiB", "20.1", "us", "40.0", "us-", "not", "run"] or "not run" in lines[-1]


def test_a_contrast_shows_both_sides() -> None:
    tables = {CONFIGURED: (one(4096, 2.0, 2.0),), NEAR: (one(4096, 2.0, 2.0),), FAR: (one(4096, 5.0, 5.0),)}
    lines = list(probe.lines(ProbeReport("h", "s", "allreduce", (), tables, near=True)))
    assert "2.50" in lines[-1]
    assert lines[-1].endswith(" -")


def test_sizes_that_did_not_fit_are_said() -> None:
    lines = list(probe.lines(ProbeReport("h", "s", "allreduce", (), {CONFIGURED: ()}, capped_bytes=1 << 20)))
    assert lines[-1] == "sizes above 1 MiB are left out: the free memory does not hold them"


@given(
    st.dictionaries(
        st.text(max_size=10),
        st.lists(st.tuples(st.sampled_from([64, 4096, 1 << 20]), st.floats(0, 1e9)), max_size=3, unique_by=lambda pair: pair[0]),
        max_size=3,
    )
)
def test_no_figures_break_a_table(given: dict[str, list[tuple[int, float]]]) -> None:
    tables = {name: tuple(one(size, time) for size, time in some) for name, some in given.items()}
    for sweep in (True, False):
        assert all(isinstance(line, str) for line in probe.lines(ProbeReport("h", "s", "allreduce", (), tables, sweep=sweep)))
    assert list(probe.lines(ProbeReport("h", "s", "lottery", (), tables)))
