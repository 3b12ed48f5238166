"""A freeze in an inventory goes with the host's orders; the nearest word wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.control import fleet, pyinfra_inventory
from nearsocket.model.errors import UsageError
from nearsocket.model.freeze import Freeze

WHOLE = """\
freeze: {until: 2030-01-31, reason: the whole fleet}
groups:
  night: {freeze: {until: 2030-02-28, reason: the night shift}}
hosts:
  - {name: a}
  - {name: b, groups: [night]}
  - {name: c, groups: [night], freeze: {until: 2030-03-31, reason: this one}}
"""


def test_the_nearest_freeze_counts(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(WHOLE)
    assert [target.freeze for target in fleet.read(path).targets] == [
        Freeze("2030-01-31", "the whole fleet", "the inventory"),
        Freeze("2030-02-28", "the night shift", "the inventory"),
        Freeze("2030-03-31", "this one", "the inventory"),
    ]


@pytest.mark.parametrize("said", ["{until: soon, reason: x}", "{until: 2030-01-31}", "{reason: x}", "true"])
def test_a_freeze_needs_a_day_and_a_reason(said: str, tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(f"freeze: {said}\nhosts: [{{name: a}}]\n")
    with pytest.raises(UsageError, match="freeze"):
        fleet.read(path)


def test_pyinfras_data_says_it_too() -> None:
    data = {"nearsocket_freeze": {"until": "2030-01-31", "reason": "audit"}}
    target, _ = pyinfra_inventory.member("a", "ssh", [], data, "x")
    assert target.freeze == Freeze("2030-01-31", "audit", "the inventory")
