"""Probes on the page: read from `nearsocket.probe/1` or refused in one line, drawn where they belong, whatever they hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.commands.output import measured_in
from nearsocket.model.errors import UsageError
from nearsocket.model.measured import PLACES, from_json
from nearsocket.report import html
from nearsocket.report.formats import Format
from nearsocket.report.html.chart import curves, lottery
from tests.report import scenarios
from tests.report.test_hostile_forms import TEXTS, Outline

SIZES = (8 << 10, 12 << 10, 1 << 20, 48 << 20, 256 << 20)


def probe(**changes: Any) -> dict[str, Any]:
    """A probe as `nearsocket probe --json` writes it: one host's times, near by force and far by force."""

    def series(name: str, gb_s: float) -> dict[str, Any]:
        rows = [
            {
                "size_bytes": s,
                "median_us": 30 + s / gb_s / 1e3,
                "p99_us": 40 + s / gb_s / 1e3,
                "bus_gb_s": gb_s,
                "rounds_us": [],
                "wrong_elements": 0,
            }
            for s in SIZES
        ]
        return {"name": name, "sizes": rows}

    made = {
        "host": "gpu1",
        "subject": "replica sglang",
        "kind": "allreduce",
        "key": None,
        "facts": {},
        "capped_bytes": None,
        "baseline": None,
        "measured": [series("forced near", 21.0), series("forced far", 8.2)],
        "draws": [],
        "prompts": [],
        "findings": [],
    }
    return {**made, **changes}


def whole(*probes: dict[str, Any]) -> str:
    """The file."""
    return json.dumps({"schema": "nearsocket.probe/1", "probes": list(probes), "status": "pass", "exit_code": 0})


def points(svg: str, kind: str) -> list[tuple[float, float]]:
    """The corners of that curve."""
    found = re.search(rf'class="curve c-{kind}" d="M([^"]*)"', svg)
    assert found
    return [(float(x), float(y)) for x, y in (pair.split() for pair in found[1].split("L"))]


def test_a_curve_goes_right_with_the_size_and_far_lies_above_near() -> None:
    [read] = from_json(whole(probe()))
    figure = curves(read.curves)
    assert figure
    near, far = points(str(figure.elements), "near"), points(str(figure.elements), "far")
    assert [x for x, _ in near] == sorted(x for x, _ in near) == [x for x, _ in far]
    assert len(near) == len(SIZES)
    assert near[-1][1] > far[-1][1]  # SVG counts downwards: less time is lower
    assert all(0 <= y <= figure.height and 0 <= x <= figure.width for x, y in near + far)
    assert "forced near: 8 KiB 30.4 µs" in figure.words[0]


def test_the_hosts_baseline_is_a_curve_of_its_own_named_by_its_day() -> None:
    sizes = [{"size_bytes": s, "median_us": 29 + s / 25e3, "p99_us": 40 + s / 25e3} for s in SIZES]
    [read] = from_json(whole(probe(baseline={"kept_at": "2026-11-02T03:04:05Z", "sizes": sizes})))
    figure = curves(read.curves)
    assert figure
    base, near = points(str(figure.elements), "base"), points(str(figure.elements), "near")
    assert [x for x, _ in base] == [x for x, _ in near]
    assert base[-1][1] > near[-1][1]  # it was faster then
    assert "baseline of 2026-11-02: 8 KiB 29.3 µs" in figure.words[-1]
    assert figure.words[-1] in html.render(scenarios.far(), {}, (read,))


def test_every_draw_is_a_mark_by_where_it_lies() -> None:
    draws = [{"name": "naive", "where": where, "failed": None} for where in PLACES]
    [read] = from_json(
        whole(probe(kind="lottery", measured=[], draws=[*draws, {"name": "naive", "where": "unknown", "failed": "rank 1 ended"}]))
    )
    figure = lottery(read.draws)
    assert figure
    marks = re.findall(r'<title>(start [^<]*)</title>((?:<path class="d-[a-z]+"[^>]*/>)+)', str(figure.elements))
    assert [title for title, _ in marks] == [
        *(f"start {at}: {where}" for at, where in enumerate(PLACES, 1)),
        "start 6: failed: rank 1 ended",
    ]
    assert [re.findall(r"d-([a-z]+)", shapes) for _, shapes in marks] == [
        *(["near"], ["far"], ["far", "near"], ["spare"], ["unknown"], ["failed"])
    ]
    assert figure.words == ("naive: 1 failed, 1 far, 1 near, 1 no host buffers, 1 split, 1 unknown of 6 starts.",)


def test_prompts_are_a_row_for_each_engine_and_length() -> None:
    prompts = [
        {"engine": e, "part": "first", "length": 9000, "prompt_tokens": 9000, "cached_tokens": 0, "seconds": 1.5, "tokens_s": rate}
        for e, rate in ((0, 6000.0), (0, 6010.0), (0, 6002.0), (1, 4300.0))
    ]
    page = html.render(scenarios.far(), {}, from_json(whole(probe(kind="prefill", measured=[], prompts=prompts))))
    rows = re.findall(r"<tr><td><bdi>(.*?)</tr>", page)
    assert [re.sub("<[^>]*>", "|", row) for row in rows] == [
        "A||||9,000||||3||||6,002 (6,000 to 6,010)||",
        "B||||9,000||||1||||4,300 (4,300 to 4,300)||",
    ]


def test_a_page_without_probes_has_no_place_for_them() -> None:
    assert "Measured" not in html.render(scenarios.far(), {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "nearsocket.probe/2", "probes": []}',
        '{"schema": "nearsocket.probe/1"}',
        '{"schema": "nearsocket.probe/1", "probes": [1]}',
        whole(probe(host=5)),
        whole(probe(baseline={"sizes": []})),
        whole(probe(baseline=[])),
        whole(probe(draws=[{"name": "x", "where": "elsewhere", "failed": None}])),
        whole(probe(measured=[{"name": "x", "sizes": [{"size_bytes": 1, "median_us": -1, "p99_us": 1}]}])),
        whole(probe(measured=[{"name": "x", "sizes": [{"size_bytes": 1, "median_us": float("nan"), "p99_us": 1}]}])),
        whole(probe(draws=[{"name": "x", "where": "near", "failed": None}] * 10_001)),
    ],
)
def test_what_is_no_probe_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        measured_in([path], Format.HTML)
    assert refused.value.message.startswith(f"{path}: expected ")
    assert "\n" not in refused.value.message


def test_a_probe_belongs_to_no_other_form() -> None:
    with pytest.raises(UsageError, match="expected an HTML report, found --format json"):
        measured_in([Path("p.json")], Format.JSON)


@given(TEXTS)
def test_names_in_a_probe_are_harmless(text: str) -> None:
    def page(of: str) -> Outline:
        draws = [{"name": of, "where": "far", "failed": None}, {"name": of, "where": "far", "failed": of}]
        prompts = [{"engine": 0, "part": of, "length": 1, "prompt_tokens": 1, "cached_tokens": 0, "seconds": 1, "tokens_s": 1}]
        sizes = [{"size_bytes": 8192, "median_us": 1, "p99_us": 1}]
        table = {"name": of, "sizes": sizes}
        made = probe(
            host=of, subject=of, kind=of, measured=[table], baseline={**table, "kept_at": of or "x"}, draws=draws, prompts=prompts
        )
        return Outline(html.render(scenarios.healthy(), {}, from_json(whole(made))))

    assert page(text).tags == page("x").tags


@given(
    st.text()
    | st.recursive(st.none() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)).map(
        json.dumps
    )
)
def test_any_text_is_a_probe_or_one_clear_error(text: str) -> None:
    try:
        from_json(text)
    except UsageError as error:
        assert error.message.startswith("expected ")
