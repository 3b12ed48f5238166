"""A frozen host is not changed: by its own file, by the inventory, with an end; who changes it all the same is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model import freeze as model
from nearsocket.model.freeze import Freeze
from nearsocket.onhost.apply import freeze, lock
from tests.onhost.apply.made import Host, generation

TODAY = "2030-06-15"


@pytest.fixture
def host(root: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(freeze, "today", lambda: TODAY)
    return Host(root)


def write(host: Host, text: str) -> None:
    path = host.at(model.FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


INVENTORY = Freeze(TODAY, "audit week", "the inventory")


@pytest.mark.parametrize("by_file", [True, False])
def test_a_frozen_host_is_not_changed_and_says_why(host: Host, by_file: bool) -> None:
    if by_file:
        write(host, f"until: {TODAY}\nreason: audit week\n")
    before = host.tree_of_files()
    outcome = host.apply(generation({"a": "one"}), freeze=None if by_file else INVENTORY)
    assert outcome.error is not None
    assert f"frozen until {TODAY} by {model.FILE if by_file else 'the inventory'}: audit week" in outcome.error
    assert "override_freeze" in (outcome.hint or "")
    assert not outcome.wrote
    assert host.tree_of_files() == before
    dry = host.apply(generation({"a": "one"}), freeze=None if by_file else INVENTORY, dry=True)
    assert dry.error is None
    assert "a change is refused" in dry.notes[-1]


def test_an_override_goes_on_and_is_written_down_with_its_reason(host: Host) -> None:
    write(host, "reason: no change without the night shift")
    outcome = host.apply(generation({"a": "one"}), override_freeze="GPU 3 died")
    assert outcome.error is None
    assert "overridden: GPU 3 died" in outcome.notes[-1]
    entry = json.loads(host.at(model.LOG).read_text())
    assert (entry["why"], entry["who"]) == ("GPU 3 died", "nearsocket apply")
    assert "night shift" in entry["freeze"]
    host.apply(generation({"a": "two"}), override_freeze="again")
    assert len(host.at(model.LOG).read_text().splitlines()) == 2


def test_a_freeze_that_is_over_or_has_nothing_to_stop_stops_nothing(host: Host) -> None:
    write(host, "until: 2030-06-14\nreason: past\n")
    made = generation({"a": "one"})
    assert host.apply(made, freeze=Freeze("2030-06-14", "past", "the inventory")).error is None
    write(host, "reason: now\n")
    assert host.apply(made).error is None
    assert not host.at(model.LOG).exists()


def test_a_freeze_in_the_inventory_counts_where_the_hosts_own_is_over(host: Host) -> None:
    write(host, "until: 2030-06-14\nreason: past\n")
    assert "audit week" in (host.apply(generation({"a": "one"}), freeze=INVENTORY).error or "")


@pytest.mark.parametrize("kind", ["folder", "dangling", "link"])
def test_a_file_that_is_none_freezes_and_a_link_is_not_followed(host: Host, kind: str) -> None:
    path = host.at(model.FILE)
    path.parent.mkdir(parents=True)
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/nowhere" if kind == "dangling" else "/etc/hostname")
    assert "it cannot be read" in (host.apply(generation({"a": "one"})).error or "")


@given(st.text(max_size=200))
def test_whatever_stands_in_the_file_freezes_unless_it_says_a_day(text: str) -> None:
    found = model.parse(text, "file")
    assert found.reason
    assert str(found).isprintable()
    if found.until is None:
        assert not found.over("9999-12-31")


def test_a_slip_in_the_day_does_not_thaw_the_host() -> None:
    assert model.parse("until: next week\nreason: r\n", "f") == Freeze(
        None, "r; until next week, which is no day such as 2030-01-31", "f"
    )
    assert model.parse("", "f") == Freeze(None, "no reason given", "f")
    assert model.parse("# comment\nuntil = '2030-01-31'\nreason = \"x y\"\n", "f") == Freeze("2030-01-31", "x y", "f")


def test_a_second_operator_waits_for_the_first_as_long_as_asked(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with lock.exclusive(host.tree, "ops@first", 0):
        naps: list[float] = []
        monkeypatch.setattr(lock.time, "sleep", naps.append)
        monkeypatch.setattr(lock.time, "monotonic", lambda: float(len(naps)))
        outcome = host.apply(generation({"a": "one"}), lock_wait_s=5)
    assert len(naps) == 5
    assert "ops@first" in (outcome.error or "")


def test_a_second_operator_goes_on_once_the_first_is_done(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lock.exclusive(host.tree, "ops@first", 0)
    first.__enter__()
    monkeypatch.setattr(lock.time, "sleep", lambda _s: first.__exit__(None, None, None))
    assert host.apply(generation({"a": "one"}), lock_wait_s=60).error is None
