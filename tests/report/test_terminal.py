"""The report for people: what it must show, at any width, on any stream, whatever the texts hold."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from nearsocket.model.errors import EXIT_CLEAN
from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.model.report import Maintenance, Report
from nearsocket.report import terminal
from tests import build
from tests.report import scenarios
from tests.report.scenarios import EVIL, FOLDER, GOLDEN, SCENARIOS, one, report, text_of


@pytest.mark.parametrize("name", GOLDEN)
def test_the_page_is_as_recorded(name: str) -> None:
    assert scenarios.golden(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_every_recorded_page_is_compared() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(GOLDEN)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("width", [40, 56, 79, 80, 81, 120, 200])
def test_only_remedies_are_wider_than_the_page(scenario: str, width: int) -> None:
    made = SCENARIOS[scenario]()
    remedies = {line.strip() for h in made.hosts for f in h.findings if f.remedy for line in f.remedy.splitlines()}
    for line in text_of(made, width).splitlines():
        assert cell_len(line) <= width or any(line.strip() == remedy for remedy in remedies) or scenario == "hostile", line
        assert line == line.rstrip()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_remedy_is_never_broken(width: int) -> None:
    made = scenarios.far()
    lines = {line.strip() for line in text_of(made, width).splitlines()}
    for found in made.hosts[0].findings:
        for wanted in (found.remedy or "").splitlines():
            assert wanted in lines


def test_a_here_document_starts_at_the_margin() -> None:
    remedy = "cat > /etc/sysctl.d/60-numa.conf <<'EOF'\nkernel.numa_balancing = 0\nEOF"
    page = text_of(report(one(build.host(), scenarios.finding("kernel.numa-balancing", Status.WARN, "it is on", remedy=remedy))))
    assert f"\n{remedy}\n" in page


def test_evidence_beyond_the_first_pieces_is_counted() -> None:
    pieces = tuple(Evidence(f"/proc/{number}", "read") for number in range(5))
    found = Finding("a.b", Status.FAIL, "gpu1", "wrong", pieces)
    assert "2 more pieces of evidence with -v" in text_of(report(one(build.host(), found)))
    assert "/proc/4" in text_of(report(one(build.host(), found)), verbose=True)


def test_problems_come_worst_first_with_core_unknowns_before_others() -> None:
    found = [
        scenarios.finding("a.warned", Status.WARN, "w"),
        scenarios.finding("b.unknown", Status.UNKNOWN, "u"),
        scenarios.finding("nccl.cumem-in-force", Status.UNKNOWN, "core"),
        scenarios.finding("z.failed", Status.FAIL, "f"),
    ]
    page = text_of(report(one(build.host(), *found)))
    places = [page.index(id) for id in ("z.failed", "nccl.cumem-in-force", "b.unknown", "a.warned")]
    assert places == sorted(places)


def test_many_hosts_begin_with_a_table_and_an_unreachable_one_takes_one_line() -> None:
    page = text_of(scenarios.many())
    table, _, details = page.partition("\n\n")
    assert [line.split()[2] for line in table.splitlines()[1:]] == ["gpu4", "gpu3", "gpu2", "gpu1", "gpu5"]
    assert details.count("gpu3") == 1
    assert "? UNKNOWN  gpu3  ssh: connect to port 22: no route to host\n\n" in details
    assert "gpu1" not in details
    assert "gpu5" not in details


def test_a_host_in_maintenance_and_waived_findings_are_named_as_not_counted() -> None:
    page = text_of(scenarios.waived())
    assert "in maintenance until 2026-02-28: board swap (does not count)" in page
    assert "until 2026-03-01 by ops: benchmark rerun until the board is swapped" in page
    assert "not counted: 1 host in maintenance and 1 waived finding" in page
    assert "✗ FAIL" not in page


@pytest.mark.parametrize("scenario", ["healthy", "no_gpu"])
def test_quiet_says_nothing_where_nothing_is_wrong(scenario: str) -> None:
    assert text_of(SCENARIOS[scenario](), quiet=True) == ""


def test_quiet_shows_problems_alone() -> None:
    page = text_of(scenarios.far(), quiet=True)
    assert "nccl.buffer-placement" in page
    assert "socket 0 ─" not in page
    assert "not applicable" not in page


def test_verbose_lists_every_finding_and_whole_evidence() -> None:
    made = scenarios.far()
    page = text_of(made, verbose=True)
    for found in made.hosts[0].findings:
        assert found.id in page
    assert "N0=2354 kernelpagesize_kB=4" in page
    assert "Node 1 Dirty: 12 kB" in page


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_last_lines_say_the_code_and_the_next_step(scenario: str) -> None:
    made = SCENARIOS[scenario]()
    end = text_of(made).splitlines()[-4:]
    assert any(f"exit code {made.exit_code}: " in line for line in end)
    assert any(line.startswith("next: ") for line in end)


@pytest.mark.parametrize(
    ("status", "id", "code", "said"),
    [
        (Status.PASS, "a.b", 0, "pass  exit code 0: all pass or not applicable"),
        (Status.WARN, "a.b", 1, "WARN  exit code 1: warnings"),
        (Status.UNKNOWN, "a.b", 1, "UNKNOWN  exit code 1: warnings, and unknowns that count as such"),
        (Status.FAIL, "a.b", 2, "FAIL  exit code 2: failures"),
        (Status.WARN, "a.b", 2, "WARN  exit code 2: warnings, failures under --strict"),
        (Status.UNKNOWN, "nccl.buffer-placement", 3, "UNKNOWN  exit code 3: a core finding is unknown"),
        (Status.UNKNOWN, "a.b", 3, "UNKNOWN  exit code 3: a finding is unknown, which counts under --strict"),
    ],
)
def test_the_exit_code_is_put_into_words(status: Status, id: str, code: int, said: str) -> None:
    made = dataclasses.replace(report(one(build.host(), scenarios.finding(id, status, "it is so"))), exit_code=code)
    assert text_of(made).splitlines()[-2] == said


def test_evidence_that_only_repeats_the_summary_is_left_out() -> None:
    found = Finding(
        "nccl.cumem-in-force", Status.UNKNOWN, "gpu1", "nvml is not in this snapshot", (Evidence("nvml", "not in this snapshot"),)
    )
    assert "nvml: " not in text_of(report(one(build.host(), found)))
    assert "nvml:\n" in text_of(report(one(build.host(), found)), verbose=True)


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_terminals_and_obeys_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], coloured: bool
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    out = io.StringIO()
    terminal.show(scenarios.far(), terminal.console(out, 80))
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-7]m", out.getvalue())) is coloured


@pytest.mark.parametrize(("columns", "width"), [("0", 80), ("19", 80), ("20", 20), ("100", 100)])
def test_a_width_that_holds_no_page_is_taken_as_80(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    out = io.StringIO()
    console = terminal.console(out)
    terminal.show(scenarios.far(), console)
    assert console.width == width and "FAIL" in out.getvalue()


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_that_is_not_utf_8_gets_no_box_characters(scenario: str, encoding: str) -> None:
    made = SCENARIOS[scenario]()
    page = text_of(made, 80, encoding)
    assert page.isascii()
    assert "socket 0 ---" in page or scenario == "many"


def test_markup_in_outside_text_stays_text() -> None:
    page = text_of(scenarios.hostile(), 400)
    assert "[bold red]y[/] :skull:" in page
    assert "\u202e" not in page
    assert "\\u202e" in page


def test_one_line_for_results_as_they_come() -> None:
    out = terminal.console(io.StringIO(), 80)
    assert terminal.host_line(scenarios.far().hosts[0], out).plain == "✗ FAIL  gpu1  1 fail, 1 unknown, 1 warn"
    assert terminal.host_line(scenarios.many().hosts[2], out).plain.startswith("? UNKNOWN  gpu3  ssh: connect")


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.one_of(st.text(max_size=40), st.just(EVIL)), width=st.integers(20, 220), how=st.sampled_from(["", "quiet", "verbose"])
)
def test_no_text_breaks_the_page_or_reaches_the_terminal_raw(text: str, width: int, how: str) -> None:
    host = scenarios.placed({0: build.RING_BYTES}, name=text, kernel=text, gpus=(build.gpu(0, name=text), build.gpu(1, pci=text)))
    host = dataclasses.replace(host, replicas=tuple(dataclasses.replace(r, name=text) for r in host.replicas))
    found = (
        Finding("a.b", Status.FAIL, text, text, (Evidence(text, text),), text),
        Finding("a.c", Status.PASS, text, text, (Evidence(text, text), Evidence("here", "x"))),
        Finding("a.d", Status.WARN, text, text, (), text, Waived(text, text, text)),
    )
    host_report = one(host, *found, name=text, maintenance=Maintenance(text, text))
    made = Report((host_report, one(None, name=text, reason=text, taken_at=text)), Status.PASS, EXIT_CLEAN)
    for encoding in ("utf-8", "ascii"):
        page = text_of(made, width, encoding, **({how: True} if how else {}))
        assert all(line.isprintable() for line in page.split("\n"))
