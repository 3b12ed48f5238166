"""Every form that a report can have, read by a reader of its own; what the exit code says, each of them says too."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from nearsocket.model.exitcode import code_of, exit_code, worst_of, worst_status
from nearsocket.model.finding import Finding, Status
from nearsocket.model.report import Report
from nearsocket.report import jsonl, junit, markdown, prometheus
from nearsocket.report.formats import SUFFIXES, Format, Wish, render
from tests import build
from tests.report import scenarios
from tests.report.scenarios import SCENARIOS, finding, one, report

STATUSES = st.sampled_from(list(Status))


def metrics(made: Report) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample: name and labels to value. Raises where a series stands there twice."""
    samples = [s for family in text_string_to_metric_families(prometheus.render(made)) for s in family.samples]
    keyed = [((s.name, frozenset(s.labels.items())), s.value) for s in samples]
    assert max(Counter(key for key, _ in keyed).values()) == 1
    return dict(keyed)


def value(made: Report, name: str, **labels: str) -> float | None:
    """One sample's value, None where it is not there."""
    return metrics(made).get((f"nearsocket_{name}", frozenset(labels.items())))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("form", list(Format))
def test_every_form_of_every_scenario_is_text_that_ends_in_a_line_feed(scenario: str, form: Format) -> None:
    text = render(SCENARIOS[scenario](), form, Wish())
    assert text.endswith("\n")
    assert text.encode()
    assert form is Format.HTML or all(line.isprintable() for line in text.split("\n"))


def test_every_file_ending_means_one_form_and_the_terminal_needs_none() -> None:
    assert set(SUFFIXES.values()) == set(Format) - {Format.TERMINAL}


@given(st.lists(st.tuples(STATUSES, st.sampled_from(["nccl.buffer-placement", "a.b"])), min_size=1), st.booleans())
def test_junit_is_red_exactly_where_the_exit_code_is_2_or_3(drawn: list[tuple[Status, str]], strict: bool) -> None:
    found = [finding(id, status, "it is so") for status, id in drawn]
    suites = JUnitXml.fromstring(junit.render(report(one(build.host(), *found)), strict).encode())
    red = {Failure: 2, Error: 3}
    codes = [red.get(type(result), 0) for suite in suites for case in suite for result in case.result]
    assert worst_of(codes) == (exit_code(found, strict) if exit_code(found, strict) in (2, 3) else 0)
    assert (suites.tests, suites.failures) == (len(found), sum(code_of(f, strict) == 2 for f in found))


def test_junit_skips_what_does_not_count_and_says_why() -> None:
    [suite] = JUnitXml.fromstring(junit.render(scenarios.waived()).encode())
    waived = next(case for case in suite if case.name.startswith("nccl.buffer-placement"))
    [why] = waived.result
    assert isinstance(why, Skipped)
    assert why.message.startswith("waived until 2026-03-01 by ops (benchmark rerun until the board is swapped): fail: ")


def test_junit_has_the_evidence_and_the_remedy_of_a_failure() -> None:
    made = scenarios.far()
    tree = ElementTree.fromstring(junit.render(made))
    [failure] = tree.iter("failure")
    wrong = made.hosts[0].findings[0]
    assert failure.get("message") == wrong.summary
    assert wrong.remedy in (failure.text or "")
    assert wrong.evidence[0].text in (failure.text or "")


def test_a_host_that_was_not_read_is_a_metric_too() -> None:
    made = scenarios.many()
    assert value(made, "host_read", host="gpu3") == 0
    assert value(made, "host_read", host="gpu4") == 1
    assert value(made, "host_maintenance", host="gpu5") == 1
    assert value(made, "report_exit_code") == made.exit_code


def test_far_bytes_are_a_metric_by_node_and_place() -> None:
    assert value(scenarios.far(), "ring_buffer_bytes", host="gpu1", node="0", place="far") == 2 * build.RING_BYTES
    assert value(scenarios.healthy(), "ring_buffer_bytes", host="gpu1", node="1", place="near") == 2 * build.RING_BYTES
    assert value(scenarios.healthy(), "ring_buffer_bytes", host="gpu1", node="1", place="far") is None


def test_exactly_one_status_of_a_host_is_in_force() -> None:
    for host in scenarios.many().hosts:
        told = {s.value: value(scenarios.many(), "host_status", host=host.name, status=s.value) for s in Status}
        assert [word for word, there in told.items() if there] == [host.status.value]


def test_the_time_of_the_reading_is_a_metric_without_a_zone_it_is_utc() -> None:
    for said in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00", "2026-01-31T13:00:00+01:00"):
        made = report(one(build.host(), taken_at=said))
        assert value(made, "snapshot_timestamp_seconds", host="gpu1") == 1769860800
    assert value(report(one(build.host(), taken_at="yesterday")), "snapshot_timestamp_seconds", host="gpu1") is None


def test_of_two_reports_on_one_host_the_newer_is_the_metric() -> None:
    old, new = one(build.host(), finding("a.b", Status.FAIL, "x"), taken_at="2026-01-01T00:00:00Z"), one(build.host())
    for order in ((old, new), (new, old)):
        assert value(report(*order), "host_status", host="gpu1", status="fail") == 0


@given(st.lists(STATUSES))
def test_a_checks_metric_is_its_worst_finding(statuses: list[Status]) -> None:
    made = report(one(build.host(), *(finding("a.b", status, "x") for status in statuses)))
    rank = {Status.NOT_APPLICABLE: 0, Status.PASS: 1, Status.WARN: 2, Status.UNKNOWN: 3, Status.FAIL: 4}
    assert value(made, "check_severity", host="gpu1", check="a.b") == (rank[worst_status(statuses)] if statuses else None)


def test_lines_hold_every_host_and_finding_and_end_with_the_whole() -> None:
    made = scenarios.many()
    lines = [json.loads(line) for line in jsonl.render(made).splitlines()]
    assert Counter(line["kind"] for line in lines) == {
        "host": len(made.hosts),
        "finding": sum(len(host.findings) for host in made.hosts),
        "report": 1,
    }
    assert lines[-1]["exit_code"] == made.exit_code
    assert {line["host"] for line in lines if line["kind"] == "finding"} == {host.name for host in made.hosts}


def test_markdown_has_headings_table_drawing_evidence_and_remedy() -> None:
    page = MarkdownIt("commonmark").enable("table").parse(markdown.render(scenarios.many()))
    kinds = Counter(token.type for token in page)
    fences = [token.content for token in page if token.type == "fence"]
    assert kinds["table_open"] == 1
    assert any("socket 0" in text and "FAR" in text for text in fences)
    assert any(text.strip() == scenarios.far().hosts[0].findings[0].remedy for text in fences)


def test_markdown_of_two_hundred_bad_hosts_fits_a_ticket_and_says_what_it_leaves_out() -> None:
    bad = scenarios.far().hosts[0]
    made = report(*(dataclasses.replace(bad, name=f"gpu{n}") for n in range(300)))
    text = markdown.render(made)
    assert len(text) <= markdown.MOST_CHARACTERS
    assert re.search(r"\d+ of 300 hosts with findings have no room here", text)
    assert "100 more hosts, none of them worse" in text


def test_the_terminals_page_in_a_file_has_no_colour() -> None:
    assert "\x1b" not in render(scenarios.far(), Format.TERMINAL, Wish())
    assert render(scenarios.healthy(), Format.TERMINAL, Wish(quiet=True)) == ""


def test_a_remedy_that_nobody_can_look_through_is_not_shown_for_pasting() -> None:
    long = "rm -rf /srv/a && " + "x" * 9000
    made = report(one(build.host(), Finding("a.b", Status.FAIL, "gpu1", "x", (), long)))
    for form in (Format.TERMINAL, Format.HTML, Format.JUNIT, Format.MARKDOWN):
        text = render(made, form, Wish())
        assert "rm -rf" not in text
        assert "the remedy has 9017 characters and is not shown" in text.replace("\n    ", " ")
    assert long in io.StringIO(render(made, Format.JSON, Wish())).read()
