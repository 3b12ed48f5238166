"""The drawing of a host in headless Chromium: what stands where, near and far, and that no text covers another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report import browser
from tests.report.pages import HOSTS, audited, seen, show, tab

pytestmark = pytest.mark.browser
__all__ = ["tab"]


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
