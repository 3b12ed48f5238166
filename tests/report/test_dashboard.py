"""The example dashboard asks for metrics and labels that the report has; every metric is in the docs."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from nearsocket.report import prometheus
from tests import build
from tests.report import scenarios
from tests.report.scenarios import one, report

DOCS = Path(__file__).parent.parent.parent / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "nearsocket.json").read_text(encoding="utf-8"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS += [variable["definition"] for variable in DASHBOARD["templating"]["list"] if "definition" in variable]


def exported() -> dict[str, set[str]]:
    """Every metric that the report can have, with its labels."""
    made = report(*scenarios.many().hosts, *scenarios.eight().hosts, one(build.host(name="zfs", arc_bytes=1)))
    families = text_string_to_metric_families(prometheus.render(made))
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def test_every_metric_of_the_dashboard_is_one_that_the_report_has() -> None:
    asked = {name for expression in EXPRESSIONS for name in re.findall(r"nearsocket_\w+", expression)}
    assert asked
    assert asked - set(exported()) == set()


def test_every_label_of_the_dashboard_is_one_that_its_metric_has() -> None:
    known = exported()
    for expression in EXPRESSIONS:
        for name, selector in re.findall(r"(nearsocket_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", selector)) - known[name] == set(), expression
        for label in re.findall(r"by \((\w+)\)", expression):
            assert all(label in known[name] for name in re.findall(r"nearsocket_\w+", expression)), expression


def test_every_legend_names_a_label_that_its_metric_has() -> None:
    known = exported()
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            names = re.findall(r"nearsocket_\w+", target["expr"])
            assert all(label in known[name] for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]) for name in names)


def test_panels_have_numbers_of_their_own_and_none_lies_on_another() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for a, b in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart, (a, b)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_every_metric_is_on_the_page_about_reports_and_no_other() -> None:
    page = (DOCS / "report.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(nearsocket_[a-z_]+)", page)) == set(exported())
