"""The HTML report for those who do not see it: axe-core's rules, and names and order in Chromium's accessibility tree."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.measured import from_json
from tests.report import browser
from tests.report.pages import HOSTS, audited, fleet, show, tab
from tests.report.scenarios import SCENARIOS
from tests.report.test_measured import probe, whole

__all__ = ["tab"]
pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "axe" / "node_modules" / "axe-core" / "axe.min.js"
#: WCAG 2.2 to level AA, and what axe's authors call best practice.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(page: browser.Page) -> list[str]:
    """What axe-core finds, a line for each rule, with the first element that breaks it."""
    page.ask(AXE.read_text(encoding="utf-8") + ";0")
    found: list[dict[str, Any]] = page.ask(
        f"axe.run(document, {{ runOnly: {RULES} }}).then(r => JSON.parse(JSON.stringify(r.violations)))"
    )
    return [f"{v['id']} ({len(v['nodes'])}): {v['nodes'][0]['html'][:200]}: {v['nodes'][0]['failureSummary']}" for v in found]


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core (make report-test gets it where npm is)")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1300, True), (1300, False)])
@pytest.mark.parametrize("name", ["two sockets, far", "eight GPUs", "sources disagree", "fleet", "waived", "many"])
def test_axe_finds_nothing(tab: browser.Page, tmp_path: Path, name: str, width: int, dark: bool) -> None:
    made = fleet(6) if name == "fleet" else audited(HOSTS[name]) if name in HOSTS else SCENARIOS[name]()
    show(tab, tmp_path, made, from_json(whole(probe())), width=width, dark=dark)
    tab.ask("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert violations(tab) == []


def tree(page: browser.Page) -> list[tuple[str, str]]:
    """Role and name of everything that assistive technology is told, in its order."""
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")]


@pytest.mark.parametrize("name", ["two sockets, far", "eight GPUs"])
def test_the_tree_has_landmarks_headings_in_order_and_a_drawing_in_words(tab: browser.Page, tmp_path: Path, name: str) -> None:
    show(tab, tmp_path, audited(HOSTS[name]))
    told = tree(tab)
    roles = [role for role, _ in told]
    assert {"banner", "main", "contentinfo", "search"} <= set(roles)
    assert next(text for role, text in told if role == "heading") == "gpu1 fails"
    levels = tab.ask("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert ("image", "Sockets, memory, GPUs and NCCL buffers of gpu1") in [(role.lower(), text) for role, text in told]


def test_every_control_has_a_name_and_can_be_reached_by_the_tab_key(tab: browser.Page, tmp_path: Path) -> None:
    show(tab, tmp_path, fleet(26))
    controls = [(role, text) for role, text in tree(tab) if role in ("button", "link", "checkbox", "searchbox")]
    assert len(controls) > 100
    assert [role for role, text in controls if not text.strip()] == []
    assert tab.ask("[...document.querySelectorAll('button, a, input, summary')].every(e => e.tabIndex >= 0)")


def test_the_drawing_says_in_words_where_far_buffers_lie(tab: browser.Page, tmp_path: Path) -> None:
    show(tab, tmp_path, audited(HOSTS["two sockets, far"]))
    said = tab.ask("document.querySelector('.drawing desc').textContent")
    assert "Node 0: sglang: 36.8 MiB in 4 files, far." in said
    assert "Socket 1: node 1 with 1 GiB free and 250 GiB page cache of 256 GiB, GPU 0, GPU 1." in said
