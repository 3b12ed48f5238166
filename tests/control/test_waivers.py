"""Waivers and maintenance, day by day."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control import waivers
from nearsocket.control.waivers import Waiver
from nearsocket.model.exitcode import exit_code
from nearsocket.model.finding import Evidence, Finding, Status
from nearsocket.model.report import Maintenance

TODAY = date(2026, 3, 31)


def waiver(**changes: object) -> Waiver:
    made: dict[str, object] = {"id": "memory.near-free", "host": "gpu*", "reason": "cache", "owner": "ops", "expires": TODAY}
    return Waiver(**{**made, **changes})  # type: ignore[arg-type]


def finding(status: Status = Status.FAIL, id: str = "memory.near-free") -> Finding:
    return Finding(id, status, "node 0", "a figure", (Evidence("a file", "text"),))


@pytest.mark.parametrize("status", [Status.FAIL, Status.WARN, Status.UNKNOWN])
def test_a_finding_is_marked_keeps_its_status_and_does_not_count(status: Status) -> None:
    (found,) = waivers.apply([waiver()], "gpu1", [finding(status)], TODAY)
    assert found.status is status
    assert found.waived is not None
    assert (found.waived.reason, found.waived.owner, found.waived.expires) == ("cache", "ops", "2026-03-31")
    assert exit_code([found], strict=True) == 0


@pytest.mark.parametrize("status", [Status.PASS, Status.NOT_APPLICABLE])
def test_what_is_not_wrong_is_not_waived(status: Status) -> None:
    assert waivers.apply([waiver()], "gpu1", [finding(status)], TODAY)[0].waived is None


@pytest.mark.parametrize(
    ("changes", "host"),
    [
        ({"id": "memory.zfs-arc"}, "gpu1"),
        ({"id": "memory.*"}, "gpu1"),  # an id is whole: a waiver must not swallow what is not there yet
        ({}, "cpu1"),
        ({"host": "gpu[2-9]"}, "gpu1"),
        ({"host": "GPU1"}, "gpu1"),
        ({"expires": TODAY - timedelta(days=1)}, "gpu1"),
    ],
)
def test_another_id_host_or_day_is_not_covered(changes: dict[str, object], host: str) -> None:
    assert waivers.apply([waiver(**changes)], host, [finding()], TODAY)[0].waived is None


def test_several_hosts_stand_in_one_waiver_parted_by_commas() -> None:
    several = waiver(host="gpu1, gpu3")
    assert [name for name in ("gpu1", "gpu2", "gpu3") if several.names(name)] == ["gpu1", "gpu3"]


def test_the_second_waiver_covers_where_the_first_is_over() -> None:
    over, fresh = waiver(expires=TODAY - timedelta(days=1), owner="gone"), waiver(owner="here")
    marked = waivers.apply([over, fresh], "gpu1", [finding()], TODAY)[0].waived
    assert marked is not None
    assert marked.owner == "here"


@given(st.dates(), st.dates())
def test_a_waiver_holds_through_its_last_day(expires: date, today: date) -> None:
    assert waiver(expires=expires).covers("gpu1", today) == (today <= expires)


def idle(*entries: Waiver, **hosts: list[Finding]) -> list[str]:
    found = waivers.idle(entries, hosts, TODAY)
    assert all(item.status is Status.WARN and item.id == "host.waiver-unused" and item.remedy for item in found)
    return [f"{item.subject}: {item.summary}" for item in found]


def test_a_waiver_in_use_is_silent() -> None:
    assert idle(waiver(), gpu1=[finding()]) == []


def test_a_waiver_that_one_of_its_hosts_needs_is_silent() -> None:
    assert idle(waiver(), gpu1=[finding(Status.PASS)], gpu2=[finding(Status.WARN)]) == []


def test_an_unused_waiver_warns_on_the_first_host_that_it_names() -> None:
    (said,) = idle(waiver(), cpu1=[finding()], gpu1=[finding(Status.PASS)], gpu2=[finding(Status.PASS)])
    assert said.startswith("gpu1: the waiver of memory.near-free for gpu* (ops: cache) is unused")


@pytest.mark.parametrize(
    ("status", "words"),
    [(Status.FAIL, "ended on 2026-03-30; its findings count again"), (Status.PASS, "it is not needed any more")],
)
def test_an_expired_waiver_warns_and_says_whether_it_is_needed(status: Status, words: str) -> None:
    (said,) = idle(waiver(expires=TODAY - timedelta(days=1)), gpu1=[finding(status)])
    assert words in said


def test_a_waiver_says_nothing_where_its_hosts_were_not_audited_or_its_check_did_not_run() -> None:
    assert idle(waiver(), cpu1=[finding()]) == []
    assert idle(waiver(), gpu1=[finding(id="host.reachable")]) == []
    assert idle(waiver(), gpu1=[finding(Status.PASS)], gpu2=[finding(id="host.reachable")]) == []


def test_a_waiver_that_names_no_host_of_the_inventory_warns() -> None:
    marked = waivers.naming([waiver(host="gpuu1"), waiver(host="gpu1,gpu9"), waiver(host="gpu2")], ["gpu1", "gpu2"])
    assert [entry.nobody for entry in marked] == [True, False, False]
    (said,) = idle(*marked, gpu1=[finding()])
    assert said.startswith("gpu1: the waiver of memory.near-free for gpuu1 (ops: cache) waives nothing: no host")


def test_a_name_that_another_file_s_host_has_is_somebody() -> None:
    assert idle(*waivers.naming([waiver(host="cpu1")], ["gpu1"]), cpu1=[finding()]) == []


def test_a_waiver_of_an_id_that_no_check_has_warns() -> None:
    found = waivers.idle([waiver(id="memory.near-fre"), waiver()], {"gpu1": [finding()]}, TODAY, {"memory.near-free"})
    assert [(item.subject, item.status) for item in found] == [("gpu1", Status.WARN)]
    assert "memory.near-fre for gpu*" in found[0].summary and "no check has that id" in found[0].summary
    assert waivers.idle([waiver(id="memory.near-fre")], {}, TODAY, {"memory.near-free"}) == []


@pytest.mark.parametrize(("until", "holds"), [("2026-03-30", False), ("2026-03-31", True), ("2026-04-01", True)])
def test_maintenance_holds_through_its_last_day(until: str, holds: bool) -> None:
    entry = Maintenance(until, "new boards")
    assert waivers.in_force(entry, TODAY) == (entry if holds else None)


def test_no_maintenance_is_none() -> None:
    assert waivers.in_force(None, TODAY) is None
