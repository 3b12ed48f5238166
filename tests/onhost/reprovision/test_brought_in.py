"""What a deploy brings in or takes away while an upgrade is under way: it is stopped, brought up and proven with the others."""

from __future__ import annotations

from nearsocket.model.driver.orders import Action, Phase
from nearsocket.model.places import hold_file
from nearsocket.onhost.apply import disk
from nearsocket.onhost.reprovision import kept
from tests.onhost.apply.made import Host as Installation
from tests.onhost.apply.made import generation
from tests.onhost.reprovision.conftest import UNITS, Site, records, waiting
from tests.onhost.reprovision.standin import NEW, OLD
from tests.onhost.reprovision.test_steps import WHOLE

_BROUGHT = "nearsocket-x-c.service"


def deployed_between(site: Site) -> None:
    """b does not come up behind the new driver; it is let go by hand, and a deploy serves c in its place."""
    site.good(*WHOLE[1:5])
    site.do(Action.START, replica="a", measured=("a", "b"))
    site.machine.change(broken=[UNITS[1]])
    assert site.do(Action.START, replica="b", measured=("a", "b")).error is not None
    disk.remove(site.tree.at(hold_file("b")))
    installation = Installation(site.root)
    installation.system = site.machine
    made = generation({"a": waiting("a"), "c": waiting("c")}, extra=records("a", "c"))
    assert installation.apply(made, allow_removals=True).error is None
    site.machine.change(broken=[])
    assert set(site.machine.state["active"]) == {UNITS[0], _BROUGHT}


def both_up(site: Site) -> None:
    for replica in "ac":
        answer = site.do(Action.START, replica=replica)
        assert (answer.error, answer.notes) == (None, ())
    site.good(Action.FINISH)
    assert (set(site.machine.state["active"]), kept.held(site.tree)) == ({UNITS[0], _BROUGHT}, ())


def test_a_replica_that_a_deploy_brought_in_is_stopped_before_packages_change_and_comes_up_on_the_way_back(site: Site) -> None:
    deployed_between(site)
    site.good(Action.BACK)
    assert set(site.machine.state["active"]) == set()
    assert kept.held(site.tree) == ("a", "c")
    site.good(Action.REBOOT, Action.AFTER)
    assert site.good(Action.STATUS).ran == ("a", "c"), "whoever judges what runs knows that it is to run"
    both_up(site)
    assert site.versions == {OLD}


def test_turned_round_forward_a_replica_that_came_in_on_the_way_back_is_stopped_and_comes_up_too(site: Site) -> None:
    site.good(*WHOLE[1:5])
    site.good(Action.BACK, Action.REBOOT, Action.AFTER)
    site.do(Action.START, replica="a")
    disk.remove(site.tree.at(hold_file("b")))
    installation = Installation(site.root)
    installation.system = site.machine
    made = generation({"a": waiting("a"), "c": waiting("c")}, extra=records("a", "c"))
    assert installation.apply(made, allow_removals=True).error is None
    site.good(Action.PREPARE, forward=True)
    assert set(site.machine.state["active"]) == set()
    site.good(Action.UPGRADE, Action.REBOOT, Action.AFTER)
    both_up(site)
    assert (site.versions, site.state.phase) == ({NEW}, Phase.DONE)


def test_on_the_way_back_no_package_changes_under_a_replica_that_does_not_stop(site: Site) -> None:
    site.good(*WHOLE[1:5])
    site.do(Action.START, replica="a")
    site.machine.fault("no-stop")
    before = site.installs()
    answer = site.do(Action.BACK)
    assert str(answer.error).startswith(f"expected {UNITS[0]} to stop, found: ")
    assert (site.installs(), site.versions) == (before, {NEW})
    site.machine.fault()
    site.good(Action.BACK)
    assert site.versions == {OLD}


def test_back_forgets_what_was_measured_behind_the_driver_that_goes(site: Site) -> None:
    """Else a replica would count as good by all-reduces of a driver that is not there any more."""
    site.good(*WHOLE[1:5])
    site.do(Action.START, replica="a", measured=("a", "b"))
    assert (site.state.measured, site.state.started) == (("a", "b"), (UNITS[0],))
    site.good(Action.BACK)
    assert (site.state.measured, site.state.started) == ((), ())
    site.good(Action.PREPARE, forward=True)
    assert site.state.measured == ()
