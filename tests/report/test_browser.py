"""The HTML report in headless Chromium: no complaint, filters, keys, print, narrow and dark screens, large fleets."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.report import html
from tests.report import browser
from tests.report.pages import HOSTS, audited, fleet, seen, show, tab
from tests.report.scenarios import SCENARIOS

pytestmark = pytest.mark.browser
__all__ = ["tab"]


@pytest.mark.parametrize("width", [360, 768])
@pytest.mark.parametrize("name", ["two sockets, far", "eight nodes", "real"])
def test_nothing_sticks_out_of_a_narrow_screen(tab: browser.Page, tmp_path: Path, name: str, width: int) -> None:
    show(tab, tmp_path, audited(HOSTS[name]), width=width)
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_follows_the_colour_scheme_of_the_screen(tab: browser.Page, tmp_path: Path, dark: bool) -> None:
    show(tab, tmp_path, audited(HOSTS["one socket"]), dark=dark)
    assert tab.ask("getComputedStyle(document.body).backgroundColor") == ("rgb(23, 25, 27)" if dark else "rgb(253, 253, 251)")


def test_the_filter_shows_only_the_status_that_is_asked_for(tab: browser.Page, tmp_path: Path) -> None:
    made = audited("hosts")
    show(tab, tmp_path, made)
    tab.ask("document.querySelector('.chip[data-status=unknown]').click()")
    wanted = sum(f.status.value == "unknown" for host in made.hosts for f in host.findings)
    hosts = sum(any(f.status.value == "unknown" for f in host.findings) for host in made.hosts)
    assert tab.ask("document.querySelector('#told').textContent") == f"{wanted} findings on {hosts} hosts"
    assert seen(tab, ".host") == seen(tab, "tr[data-host]") == hosts
    assert seen(tab, ".finding.s-fail") == seen(tab, ".finding.s-warn") == seen(tab, ".row") == 0
    tab.ask("document.querySelector('.chip[data-status=unknown]').click()")
    assert seen(tab, ".host") == len(made.hosts)
    assert tab.complaints == []


def test_passes_are_listed_where_they_are_asked_for(tab: browser.Page, tmp_path: Path) -> None:
    made = audited(HOSTS["two sockets, far"])
    show(tab, tmp_path, made)
    assert seen(tab, ".row") == 0
    tab.ask("document.querySelector('.chip[data-status=pass]').click()")
    passes = [found for host in made.hosts for found in host.findings if found.status.value == "pass"]
    assert seen(tab, ".row") == len(passes) > 0
    assert seen(tab, ".finding") == 0


def type_into_search(tab: browser.Page, text: str) -> None:
    """Typed, and waited for until the page has answered."""
    tab.press("/")
    tab.type(text)
    tab.ask(
        "new Promise(r => { const look = () => document.querySelector('#told').textContent ? r() : setTimeout(look, 20); look(); })"
    )


def test_the_search_finds_hosts_checks_and_evidence_and_escape_clears_it(tab: browser.Page, tmp_path: Path) -> None:
    show(tab, tmp_path, fleet(30))
    type_into_search(tab, "gpu-007")
    assert seen(tab, ".host") == 1
    tab.press("Escape")
    assert seen(tab, ".host") == 30
    type_into_search(tab, "nccl-ring00")
    assert 0 < seen(tab, ".host") < 30
    assert seen(tab, ".finding") > 0
    assert tab.ask(
        "[...document.querySelectorAll('.finding')].filter(e => e.checkVisibility())"
        ".every(e => e.textContent.includes('nccl-ring00'))"
    )
    tab.press("Escape")
    type_into_search(tab, "no such thing")
    assert seen(tab, ".host") == 0
    assert seen(tab, "#nothing") == 1
    tab.ask("document.querySelector('#clear').click()")
    assert seen(tab, ".host") == 30
    assert tab.complaints == []


def test_n_and_p_go_through_the_problems_and_a_question_mark_tells_the_keys(tab: browser.Page, tmp_path: Path) -> None:
    show(tab, tmp_path, audited(HOSTS["two sockets, far"]))
    at = "document.activeElement.querySelector('.id').textContent"
    tab.press("n")
    first = tab.ask(at)
    tab.press("n")
    assert tab.ask(at) != first
    tab.press("p")
    assert tab.ask(at) == first == "nccl.buffer-placement"
    tab.press("?")
    assert tab.ask("document.querySelector('#help').open")
    tab.ask("document.querySelector('#single').click(); document.querySelector('#help').close()")
    tab.press("n")
    assert tab.ask(at) == first


def test_a_cell_of_the_matrix_leads_to_its_finding_in_a_closed_host(tab: browser.Page, tmp_path: Path) -> None:
    show(tab, tmp_path, fleet(30))
    script = """(async () => {
      const cell = [...document.querySelectorAll('.matrix td a')].pop(), goal = cell.getAttribute('href').slice(1);
      const item = document.getElementById(goal), was = item.closest('details.host').open;
      cell.click();
      await new Promise(r => addEventListener('hashchange', () => requestAnimationFrame(r), { once: true }));
      return [was, item.closest('details.host').open, document.activeElement === item]; })()"""
    assert tab.ask(script) == [False, True, True]


def test_the_matrix_can_leave_out_checks_that_have_no_problem(tab: browser.Page, tmp_path: Path) -> None:
    made = fleet(30)
    show(tab, tmp_path, made)
    troubled = {f.id for host in made.hosts for f in host.findings if f.status.value in ("fail", "unknown", "warn")}
    tab.ask("document.querySelector('#only').click()")
    heads = tab.ask(
        "[...document.querySelectorAll('.matrix thead th span')].filter(e => e.checkVisibility()).map(e => e.textContent)"
    )
    assert set(heads) == troubled
    assert seen(tab, ".matrix tbody tr:first-child td") == len(troubled)


def test_a_remedy_is_copied_as_it_is(tab: browser.Page, tmp_path: Path) -> None:
    made = audited(HOSTS["two sockets, far"])
    show(tab, tmp_path, made)
    wrong = next(f for f in made.hosts[0].findings if f.id == "nccl.buffer-placement")
    script = """(async () => { let had = null; navigator.clipboard.writeText = async text => { had = text; };
      document.querySelector('.copy').click(); await Promise.resolve(); return had; })()"""
    assert tab.ask(script) == wrong.remedy
    assert tab.ask("document.querySelector('.copy').firstChild.data") == "Copied"


def test_print_opens_every_problem_and_leaves_out_what_only_a_screen_needs(tab: browser.Page, tmp_path: Path) -> None:
    made = fleet(30)
    show(tab, tmp_path, made, media="print", width=800)
    assert seen(tab, ".bar") == seen(tab, ".copy") == 0
    tab.ask("dispatchEvent(new Event('beforeprint'))")
    problems = sum(f.status.value in ("fail", "unknown", "warn") for host in made.hosts for f in host.findings)
    assert seen(tab, ".finding") == problems
    tab.ask("dispatchEvent(new Event('afterprint'))")
    assert seen(tab, ".finding") < problems


def test_two_hundred_hosts_are_under_five_megabytes_and_the_page_stays_fluid(tab: browser.Page, tmp_path: Path) -> None:
    show(tab, tmp_path, fleet(200))
    assert (tmp_path / "report.html").stat().st_size < html.LARGEST_BYTES
    assert tab.complaints == []
    assert seen(tab, "tr[data-host]") == 200
    took_ms = tab.ask("""(() => { const start = performance.now(); document.querySelector('.chip').click();
      document.body.getBoundingClientRect(); return performance.now() - start; })()""")
    assert took_ms < 3000  # about 100 on two slow cores; what is not fluid takes many seconds


def test_without_javascript_everything_but_the_filter_is_there(tab: browser.Page, tmp_path: Path) -> None:
    tab.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        show(tab, tmp_path, audited(HOSTS["two sockets, far"]))
    finally:
        tab.send("Emulation.setScriptExecutionDisabled", value=False)
    assert seen(tab, ".finding") == 9
    assert seen(tab, ".bar") == seen(tab, ".copy") == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_and_hostile_text_is_shown_without_a_complaint(tab: browser.Page, tmp_path: Path, scenario: str) -> None:
    show(tab, tmp_path, SCENARIOS[scenario]())
    assert tab.complaints == []
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
