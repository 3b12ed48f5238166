"""The metrics: text that Prometheus reads, and alert rules that fire on their fault and on no other."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model import metrics
from tests.onhost.verify.shapes import verdict
from tests.onhost.verify.test_verdicts import TABLE, files

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "templates/prometheus/alerts.yaml"
#: Debian's package `prometheus` has it; NEARSOCKET_PROMTOOL names one elsewhere.
PROMTOOL = os.environ.get("NEARSOCKET_PROMTOOL") or shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine")
LABEL = r'[a-z]+="(?:[^"\\\n]|\\["\\n])*"'
ROW = re.compile(rf"nearsocket_replica_[a-z_]+\{{{LABEL}(?:,{LABEL})*\}} \d+(?:\.\d+)?\Z")


def promtool(*words: str, given: str | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run([str(PROMTOOL), *words], input=given, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_replica_that_its_policy_stopped_is_text_of_prometheus_too() -> None:
    [row] = [line for line in metrics.stopped("a").splitlines() if not line.startswith("#")]
    assert ROW.match(row)
    assert not set(metrics.stopped("a").splitlines()) & set(metrics.text(verdict(files()).value(), 1, 1).splitlines())


@pytest.mark.parametrize("name", TABLE)
def test_every_verdict_is_text_of_prometheus(name: str) -> None:
    text = metrics.text(verdict(TABLE[name][0]).value(), 1_700_000_000, 1_700_000_100)
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(ROW.match(row) for row in rows), [row for row in rows if not ROW.match(row)]
    assert len({row.rpartition(" ")[0] for row in rows}) == len(rows)
    if PROMTOOL:
        promtool("check", "metrics", given=text)


@given(st.text(max_size=40))
def test_any_name_stays_inside_its_quotes(name: str) -> None:
    value = dataclasses.replace(verdict(files()), replica=name).value()
    text = metrics.text(value, 1.5, 2)
    assert all(line.startswith("#") or ROW.match(line) for line in text.split("\n")[:-1])


def test_a_start_that_was_not_judged_claims_nothing() -> None:
    text = metrics.text({"replica": "a"}, 5, 0)
    assert 'verdict{replica="a",verdict="unknown"} 1\n' in text
    assert 'verdict{replica="a",verdict="near"} 0\n' in text
    assert 'verdict_timestamp_seconds{replica="a"} 0\n' in text
    assert "ranks" not in text


def test_the_rules_name_metrics_that_exist() -> None:
    text = metrics.text(verdict(files()).value(), 1, 2) + metrics.stopped("a")
    named = set(re.findall(r"nearsocket_replica_[a-z_]+", RULES.read_text()))
    assert named and all(f"\n{name}{{" in text for name in named)


@needs_promtool
def test_promtool_accepts_the_rules_and_each_fires_on_its_fault_alone(tmp_path: Path) -> None:
    promtool("check", "rules", str(RULES))
    shutil.copy(RULES, tmp_path)
    shutil.copy(ROOT / "tests/data/prometheus/alerts.test.yaml", tmp_path)
    assert "SUCCESS" in promtool("test", "rules", "alerts.test.yaml", cwd=tmp_path)
