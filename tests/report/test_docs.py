"""docs/report.md names every key that the JSON report has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nearsocket.report import json as report_json
from tests.report import scenarios

PAGE = Path(__file__).parent.parent.parent / "docs" / "report.md"


def keys(value: Any) -> Iterator[str]:
    """Every key of every object in the value, node numbers left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not key.isdecimal():
                yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_every_key_is_documented() -> None:
    named = set(re.findall(r"[`\"]([a-z_]+)[`\"]", PAGE.read_text(encoding="utf-8")))
    used = {key for name in ("eight", "waived", "snc") for key in keys(json.loads(report_json.render(scenarios.SCENARIOS[name]())))}
    assert used - named == set()
