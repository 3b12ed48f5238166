"""The HTML page without a browser: its policy, its order, its length, and what the drawing is told to draw."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import re

import pytest

from nearsocket.model.finding import Evidence, Finding, Status
from nearsocket.model.report import Maintenance
from nearsocket.report import html
from nearsocket.report.html.canvas import fitted, width_of
from nearsocket.report.html.lanes import Place, lanes
from nearsocket.report.html.view import BUDGETS, headline
from tests import build
from tests.report import scenarios
from tests.report.scenarios import finding, one, report


def test_the_policy_names_the_hash_of_the_one_style_and_the_one_script() -> None:
    page = html.render(scenarios.far(), {})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        [text] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} &#39;sha256-{digest}&#39;;" in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;;")
    assert "unsafe" not in policy[1]


def test_the_page_names_no_place_outside_itself() -> None:
    page = html.render(scenarios.many(), {})
    assert set(re.findall(r"https?://[^\s'\"<>]*", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\sstyle=|\son\w+=|@import|url\(", page)


def test_hosts_come_worst_first_in_the_matrix_and_below_it() -> None:
    page = html.render(scenarios.many(), {})
    wanted = ["gpu4", "gpu3", "gpu2", "gpu1", "gpu5"]
    assert re.findall(r'<th scope="row">.*?<bdi>(\w+)</bdi>', page) == wanted
    assert re.findall(r"<summary><h2>.*?<bdi>(\w+)</bdi>", page) == wanted


def test_two_reports_on_one_host_are_told_apart_by_their_time() -> None:
    old, new = one(build.host(), *scenarios.passes(), taken_at="2026-01-01T00:00:00Z"), one(build.host(), *scenarios.passes())
    page = html.render(report(old, new), {})
    assert re.findall(r'<th scope="row">.*?</bdi> ([^<]*)</a>', page) == ["2026-01-01 00:00:00 UTC", "2026-01-31 12:00:00 UTC"]


def test_what_must_be_true_stands_at_its_finding() -> None:
    assert "Every ring buffer lies near." in html.render(scenarios.far(), {scenarios.PLACEMENT: "Every ring buffer lies near."})


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ([Status.FAIL], ("gpu0", "fails")),
        ([Status.PASS], ("gpu0", "is clean")),
        ([Status.UNKNOWN], ("gpu0", "could not be judged in full")),
        ([Status.FAIL, Status.FAIL, Status.WARN], ("2 of 3 hosts", "fail")),
        ([Status.WARN, Status.PASS], ("1 of 2 hosts", "has warnings")),
        ([Status.PASS, Status.PASS], ("All 2 hosts", "are clean")),
        ([], ("0 hosts", "audited")),
    ],
)
def test_the_headline_is_the_verdict(statuses: list[Status], said: tuple[str, str]) -> None:
    assert headline([one(build.host(name=f"gpu{n}"), finding("a.b", status, "x")) for n, status in enumerate(statuses)]) == said


def test_a_host_in_maintenance_is_not_in_the_headlines_number() -> None:
    bad = one(build.host(), finding("a.b", Status.FAIL, "x"))
    resting = dataclasses.replace(bad, maintenance=Maintenance("2026-02-28", "board swap"))
    assert headline([bad, resting, resting]) == ("gpu1", "fails")
    assert headline([resting]) == ("gpu1", "in maintenance")


def test_a_page_that_would_be_too_large_shortens_evidence_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    long = tuple(Evidence(f"/proc/{n}", "x" * 3000) for n in range(20))
    made = report(one(build.host(), Finding("a.b", Status.FAIL, "gpu1", "wrong", long), *scenarios.passes()))
    whole = html.render(made, {})
    assert whole.count("x" * 3000) == 20
    assert "evidence is shortened on this page" not in whole
    monkeypatch.setattr(html, "LARGEST_BYTES", 50_000)
    short = html.render(made, {})
    assert len(short.encode()) <= 50_000
    assert "evidence is shortened on this page" in short
    assert "more pieces of evidence" in short
    monkeypatch.setattr(html, "LARGEST_BYTES", 1)
    spare = html.render(made, {})
    assert "4 pass" in spare
    assert "module and library are" not in spare


def test_budgets_go_from_generous_to_spare() -> None:
    for more, less in itertools.pairwise(BUDGETS):
        assert more.pieces * more.characters > less.pieces * less.characters


def test_a_split_file_has_a_mark_on_each_node_far_first_on_its_own() -> None:
    half = build.RING_BYTES // 2
    found = lanes(scenarios.placed({0: half, 1: half}))
    assert [(lane.node, lane.place, lane.size_bytes, len(lane.dots)) for lane in found] == [
        (0, Place.FAR, 2 * half, 2),
        (1, Place.NEAR, 2 * half, 2),
    ]
    assert found[0].dots[0].title == "/dev/shm/nccl-aB3dE9: 4.6 MiB of 9.2 MiB (ring, far)"


def test_what_only_cpus_use_is_neither_near_nor_far() -> None:
    spare = [lane for lane in lanes(scenarios.eight().hosts[0].host or build.host()) if lane.place is Place.SPARE]
    assert [lane.label for lane in spare] == ["33 MiB in 1 file, CPU-only"] * 2


def test_arc_and_a_replica_without_ring_buffers_stand_below_the_boxes() -> None:
    page = html.render(report(one(build.host(arc_bytes=42 << 30, processes=(build.process(buffers=()),)))), {})
    assert "ZFS ARC 42 GiB of 512 GiB" in page
    assert "sglang: no ring buffer in /dev/shm seen" in page


@pytest.mark.parametrize("text", ["", "sglang", "x" * 500, "漢字" * 50, "\u202e\x1b" * 40])
@pytest.mark.parametrize("room", [0.0, 40.0, 300.0])
def test_a_text_is_cut_to_its_room(text: str, room: float) -> None:
    cut = fitted(text, room)
    assert cut in ("…", "") or width_of(cut) <= room
    assert cut.isprintable()
