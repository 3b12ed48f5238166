"""A record of an upgrade that nobody can read: named, and, begun anew, kept aside and gone on without."""

from __future__ import annotations

import pytest

from nearsocket.model import freeze
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Action, Phase
from nearsocket.model.errors import NearsocketError
from nearsocket.onhost.reprovision import kept
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import NEW, OLD, STANDINS
from tests.onhost.reprovision.test_steps import WHOLE


def cut(site: Site, share: float = 0.5) -> str:
    """The record, cut off as a disk that was full or a hand would leave it; what is left of it."""
    path = site.tree.at(orders.FILE)
    text = path.read_text()
    path.write_text(text[: int(len(text) * share)])
    return path.read_text()


@pytest.mark.parametrize("action", [Action.STATUS, Action.PREFLIGHT, Action.PREPARE, Action.UPGRADE, Action.BACK])
def test_half_a_record_is_named_by_every_step_with_the_way_out_and_nothing_is_changed(site: Site, action: Action) -> None:
    site.good(*WHOLE[1:3])
    half = cut(site)
    calls = len(site.machine.state["calls"])
    answer = site.do(action)
    assert str(answer.error).startswith(f"{orders.FILE}: expected nearsocket.reprovision-state/1, found: ")
    assert "--anew keeps that file aside" in str(answer.hint)
    assert (site.tree.at(orders.FILE).read_text(), len(site.machine.state["calls"])) == (half, calls)


def test_no_prefix_of_a_record_is_taken_for_one(site: Site) -> None:
    site.good(Action.PREPARE)
    text = site.state.to_json()
    for end in range(len(text) - 2):
        with pytest.raises(NearsocketError):
            orders.state_from_json(text[:end])


def test_status_tells_a_finished_upgrades_record_and_that_nothing_is_held(site: Site) -> None:
    site.good(*WHOLE)
    answer = site.good(Action.STATUS)
    assert answer.state == site.state
    assert (answer.state.phase, answer.ran, answer.held) == (Phase.DONE, None, ())


def test_a_record_behind_a_link_or_none_at_all_is_no_record_to_follow(site: Site) -> None:
    assert site.good(Action.STATUS).state is None
    path = site.tree.at(orders.FILE)
    path.parent.mkdir(parents=True)
    (site.root / "elsewhere").write_text("{}")
    path.symlink_to(site.root / "elsewhere")
    assert str(site.do(Action.STATUS).error).startswith(f"{orders.FILE}: ")


def test_begun_anew_half_a_record_is_kept_aside_and_the_held_replicas_come_up_behind_the_driver(site: Site) -> None:
    site.good(*WHOLE[1:3])
    half = cut(site)
    status = site.good(Action.STATUS, forward=True)
    assert (status.state, status.held) == (None, ("a", "b"))
    assert "the record of an earlier upgrade cannot be read" in status.notes[0]
    assert "replicas that it holds: a, b" in status.notes[0]
    assert site.tree.at(orders.FILE).read_text() == half, "who looks changes nothing"
    notes = site.good(Action.PREPARE, forward=True).notes
    aside = list(site.tree.at(orders.FILE).parent.glob("state.json.unreadable-*"))
    assert [path.read_text() for path in aside] == [half]
    assert aside[0].name in notes[0]
    assert set(site.state.units) == set(UNITS)
    site.good(*WHOLE[2:], forward=True)
    assert (site.versions, site.machine.state["module"], site.up, site.state.phase) == ({NEW}, NEW, set(UNITS), Phase.DONE)


def test_begun_anew_over_packages_of_two_versions_is_one_refusal_and_the_record_is_where_it_was(site: Site) -> None:
    site.good(*WHOLE[1:2])
    site.machine._set(STANDINS[0], version=f"{NEW}-0standin1")
    half = cut(site)
    answer = site.do(Action.REHEARSE, forward=True)
    assert [look.check for look in answer.stops] == ["family"]
    assert answer.stops[0].hint.startswith("apt-get install -f")
    assert site.tree.at(orders.FILE).read_text() == half


def test_a_record_that_was_moved_away_leaves_the_held_replicas_to_be_brought_up(site: Site) -> None:
    site.good(*WHOLE[1:5])
    site.tree.at(orders.FILE).unlink()
    assert site.good(Action.STATUS).held == ("a", "b")
    site.good(*WHOLE)
    assert (site.up, kept.held(site.tree), site.installs()) == (set(UNITS), (), 1)


def test_a_freeze_is_found_by_the_look_before_anything_is_stopped_and_passed_with_a_reason(site: Site) -> None:
    (site.root / freeze.FILE.lstrip("/")).write_text("reason: audit week\n")
    for action in (Action.PREFLIGHT, Action.REHEARSE):
        stops = [str(look) for look in site.do(action).stops]
        assert len(stops) == 1
        assert stops[0].startswith("freeze: the host is frozen")
        assert "audit week" in stops[0]
    answer = site.good(Action.PREFLIGHT, override_freeze="the driver has a hole")
    assert [look.check for look in answer.looks if look.grade.value == "warn"] == ["freeze"]
    site.good(*WHOLE, override_freeze="the driver has a hole")
    assert (site.versions, site.up) == ({NEW}, set(UNITS))
    assert OLD not in site.versions
