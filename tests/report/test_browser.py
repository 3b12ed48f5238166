"""The HTML report in headless Chromium: no complaint, the drawing right, filters, keys, print, narrow and dark screens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import checks
from nearsocket.control.audit import Manner, audit
from nearsocket.control.targets import resolve
from nearsocket.model.report import Report
from nearsocket.report import html
from tests.report import browser
from tests.report.scenarios import SCENARIOS

pytestmark = pytest.mark.browser
DATA = Path(__file__).parent.parent / "data"
#: Snapshots by the shape that they have.
HOSTS = {
    "one socket": "hosts/one-socket",
    "two sockets, far": "hosts/two-socket-far",
    "two sockets, near": "hosts/two-socket-clean",
    "four nodes": "hosts/snc2-open",
    "eight nodes": "hosts/snc4",
    "eight GPUs": "hosts/eight-gpus",
    "two replicas": "hosts/two-replicas",
    "no source knows": "hosts/no-source-knows",
    "sources disagree": "hosts/sources-disagree",
    "real": "real/shm-cumem-off",
    "no GPU": "hosts/no-gpu",
}
LOADED = checks.load([DATA.parent.parent / "checks"])


@cache
def audited(*names: str) -> Report:
    """The audit of these snapshots, or of all in a folder."""
    paths = [str(path if path.is_dir() else path.with_suffix(".snapshot.json")) for path in (DATA / name for name in names)]
    return audit(resolve(paths).targets, Manner(checks=LOADED))


def fleet(size: int) -> Report:
    """A fleet of that size, its hosts like the snapshots that there are, each with a name of its own."""
    base = audited("hosts", "real")
    hosts = (dataclasses.replace(base.hosts[n % len(base.hosts)], name=f"gpu-{n + 1:03d}") for n in range(size))
    return dataclasses.replace(base, hosts=tuple(hosts))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    if browser.executable() is None:
        pytest.fail("expected Chromium, found none (Debian, Ubuntu: apt-get install chromium)")
    with browser.page(tmp_path_factory.mktemp("profile")) as page:
        yield page


def show(tab: browser.Page, folder: Path, made: Report, **how: Any) -> None:
    """The report on the screen."""
    path = folder / "report.html"
    path.write_text(html.render(made, {check.id: check.summary for check in LOADED}), encoding="utf-8")
    tab.open(path, **how)


def seen(tab: browser.Page, selector: str) -> int:
    """How many such elements are shown."""
    found = tab.ask(f"[...document.querySelectorAll({selector!r})].filter(e => e.checkVisibility()).length")
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("width", [360, 768])
@pytest.mark.parametrize("name", ["two sockets, far", "eight nodes", "real"])
def test_nothing_sticks_out_of_a_narrow_screen(tab: browser.Page, tmp_path: Path, name: str, width: int) -> None:
    show(tab, tmp_path, audited(HOSTS[name]), width=width)
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_follows_the_colour_scheme_of_the_screen(tab: browser.Page, tmp_path: Path, dark: bool) -> None:
    show(tab, tmp_path, audited(HOSTS["one socket"]), dark=dark)
    assert tab.ask("getComputedStyle(document.body).backgroundColor") == ("rgb(23, 25, 27)" if dark else "rgb(253, 253, 251)")


#: In the drawing that is shown: texts that overlap one another, leave the drawing, or leave the box that they stand in.
FAULTS = """(() => {
  const svg = [...document.querySelectorAll('.drawing')].find(e => e.checkVisibility());
  const frame = svg.getBoundingClientRect(), boxes = [...svg.querySelectorAll('.box')].map(b => b.getBoundingClientRect());
  const texts = [...svg.querySelectorAll('text')].map(t => ({ said: t.textContent, at: t.getBoundingClientRect() }));
  const inside = (a, b) => a.left >= b.left - .5 && a.right <= b.right + .5 && a.top >= b.top - .5 && a.bottom <= b.bottom + .5;
  const cross = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
  const faults = [];
  texts.forEach((one, at) => {
    if (!inside(one.at, frame)) faults.push(`leaves the drawing: ${one.said}`);
    const home = boxes.find(b => one.at.left >= b.left && one.at.left < b.right && one.at.top >= b.top && one.at.top < b.bottom);
    if (home && !inside(one.at, home)) faults.push(`leaves its box: ${one.said}`);
    texts.slice(at + 1).forEach(other => { if (cross(one.at, other.at)) faults.push(`${one.said} over ${other.said}`); });
  });
  return faults;
})()"""


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", HOSTS)
def test_no_text_of_the_drawing_covers_another_or_leaves_its_box(tab: browser.Page, tmp_path: Path, name: str, width: int) -> None:
    show(tab, tmp_path, audited(HOSTS[name]), width=width)
    assert tab.ask(FAULTS) == []
    assert tab.complaints == []


#: Where marks and GPUs stand: for each the title of its box and the node above it.
PLACES = """(kind => {
  const svg = [...document.querySelectorAll('.drawing')].find(e => e.checkVisibility());
  const heads = [...svg.querySelectorAll('.head')];
  const nodes = [...svg.querySelectorAll('.strong')].filter(t => /^Node/.test(t.textContent));
  const above = (list, at) => {
    const found = list.map(t => ({ said: t.textContent, r: t.getBoundingClientRect() }))
      .filter(t => t.r.top < at.top + 2 && Math.abs(t.r.left - at.left) < 300 && t.r.left <= at.left + 2);
    return found.length ? found.reduce((a, b) => b.r.top > a.r.top ? b : a).said : null;
  };
  const places = [...svg.querySelectorAll(kind)].map(e => e.getBoundingClientRect());
  return places.map(at => [above(heads, at), above(nodes, at)].join(', '));
})"""


@pytest.mark.parametrize("width", [390, 1300])
def test_far_buffers_stand_on_their_node_and_a_dashed_thread_crosses_to_the_gpus(
    tab: browser.Page, tmp_path: Path, width: int
) -> None:
    show(tab, tmp_path, audited(HOSTS["two sockets, far"]), width=width)
    assert tab.ask(f"{PLACES}('.d-far')") == ["Socket 0, Node 0"] * 4
    assert tab.ask(f"{PLACES}('.chip')") == ["Socket 1, Node 1"] * 2
    assert seen(tab, ".d-near") == seen(tab, ".t-near") == 0
    assert seen(tab, ".a-far") == 2
    assert tab.ask("getComputedStyle(document.querySelector('.t-far')).strokeDasharray") != "none"
    ends = "[...document.querySelectorAll('.drawing')].find(e => e.checkVisibility())"
    crossing = f"""(() => {{ const svg = {ends}, way = svg.querySelector('.t-far').getBoundingClientRect();
      const boxes = [...svg.querySelectorAll('.box')].map(b => b.getBoundingClientRect());
      return boxes.every(b => way.right > b.left && way.left < b.right && way.bottom > b.top && way.top < b.bottom); }})()"""
    assert tab.ask(crossing)


@pytest.mark.parametrize(
    ("name", "boxes", "nodes", "near", "chips"),
    [
        ("one socket", 1, ["Node 0"], {"Socket 0, Node 0": 4}, {"Socket 0, Node 0": 2}),
        ("four nodes", 2, ["Node 0", "Node 1", "Node 2", "Node 3"], {"Socket 0, Node 1": 4}, {"Socket 0, Node 1": 2}),
        (
            "eight GPUs",
            2,
            ["Node 0", "Node 1"],
            {"Socket 0, Node 0": 4, "Socket 1, Node 1": 4},
            {"Socket 0, Node 0": 4, "Socket 1, Node 1": 4},
        ),
    ],
)
def test_near_buffers_nodes_and_gpus_stand_in_their_sockets(
    tab: browser.Page, tmp_path: Path, name: str, boxes: int, nodes: list[str], near: dict[str, int], chips: dict[str, int]
) -> None:
    show(tab, tmp_path, audited(HOSTS[name]), width=1300)
    titles = "[...document.querySelectorAll('.drawing.wide .strong')].map(t => t.textContent).filter(t => /^Node/.test(t))"
    assert seen(tab, ".box") == boxes
    assert tab.ask(titles) == nodes
    for kind, wanted in ((".d-near", near), (".chip", chips)):
        found = tab.ask(f"{PLACES}('{kind}')")
        assert {place: found.count(place) for place in found} == wanted
    assert seen(tab, ".d-far") == seen(tab, ".t-far") == 0


def test_the_memory_bar_is_as_wide_as_its_shares(tab: browser.Page, tmp_path: Path) -> None:
    show(tab, tmp_path, audited(HOSTS["two sockets, far"]), width=1300)
    script = """[...document.querySelectorAll('.drawing.wide .memory')].map(g => {
      const wide = kind => { const r = g.querySelector(kind); return r ? r.getBBox().width : 0; };
      return ['.m-used', '.m-shared', '.m-cache', '.m-free'].map(kind => Math.round(1000 * wide(kind) / wide('.m-frame'))); })"""
    assert tab.ask(script) == [[109, 4, 387, 500], [20, 4, 973, 4]]


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
    show(tab, tmp_path, audited(HOSTS["two sockets, far"]))
    assert seen(tab, ".row") == 0
    tab.ask("document.querySelector('.chip[data-status=pass]').click()")
    assert seen(tab, ".row") == 17
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
    assert took_ms < 1500  # about 100 on two slow cores; what is not fluid takes many seconds


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
