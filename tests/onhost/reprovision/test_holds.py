"""The hold on starts: one for each replica, until that one is proven, through crashes, boots and power cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.model import places
from nearsocket.model.driver.orders import Action
from nearsocket.onhost import hook
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.reprovision import kept
from tests.onhost.apply.made import Host as Installation
from tests.onhost.apply.made import generation
from tests.onhost.reprovision.conftest import UNITS, Site, records, waiting
from tests.onhost.reprovision.standin import NEW
from tests.onhost.reprovision.test_steps import WHOLE


def power_cut(site: Site) -> None:
    site.machine.change(rebooting=True)
    site.machine.boot()


def test_a_power_cut_behind_the_first_start_boots_the_proven_replica_and_no_other(site: Site) -> None:
    site.good(*WHOLE[:5])
    assert kept.held(site.tree) == ("a", "b")
    site.do(Action.START, replica="a")
    assert (site.up, kept.held(site.tree)) == ({UNITS[0]}, ("b",))
    power_cut(site)
    assert site.up == {UNITS[0]}
    site.good(Action.AFTER, Action.START, Action.FINISH)
    assert (site.up, kept.held(site.tree)) == (set(UNITS), ())
    assert not site.tree.at(places.HOLD_STARTS).exists()


def test_a_power_cut_while_one_start_is_let_through_boots_not_even_that_one(site: Site) -> None:
    site.good(*WHOLE[:5])
    site.killed_at(f"start -- {UNITS[0]}", Action.START, before=False, replica="a")
    assert site.up == {UNITS[0]}
    assert site.tree.at(places.let_start("a")).exists()
    power_cut(site)
    assert site.up == set()
    site.good(Action.AFTER, Action.START, Action.FINISH)
    assert site.up == set(UNITS)


def test_a_proven_replica_that_crashes_comes_back_by_itself_while_another_is_held(site: Site) -> None:
    site.good(*WHOLE[:5])
    site.do(Action.START, replica="a")
    site.machine.change(active={})  # it ended; systemd starts it again as its unit says
    site.machine(["systemctl", "start", *UNITS], 1)
    assert site.up == {UNITS[0]}


def test_a_start_that_is_not_proven_is_held_and_started_anew_by_the_next(site: Site) -> None:
    site.good(*WHOLE[:5])
    site.machine.change(proofs={"a": "far"})
    answer = site.do(Action.START, replica="a", measured=("a",), accept_unknown=False)
    assert answer.error is not None
    assert "97 %" in answer.error
    assert "it stays up, and held: no crash and no boot starts it again" in answer.error
    assert (site.up, kept.held(site.tree)) == ({UNITS[0]}, ("a", "b"))
    assert not site.tree.at(places.let_start("a")).exists()
    assert f"replica a did not come up behind the driver {NEW}, which is proven" in site.tree.at(places.hold_file("a")).read_text()
    site.machine.change(proofs={})
    assert site.do(Action.START, replica="a", accept_unknown=False).error is None
    assert (site.state.measured, kept.held(site.tree)) == (("a",), ("b",))
    assert len(site.machine.calls("stop")) == 3


def test_a_start_that_systemd_skips_is_an_error_and_no_success(site: Site) -> None:
    site.good(*WHOLE[:5])
    site.machine.change(vanishing=[UNITS[0]])
    answer = site.do(Action.START, replica="a")
    assert answer.error == f"expected {UNITS[0]} to start, found: it is inactive (dead)"
    assert kept.held(site.tree) == ("a", "b")


def test_a_replica_that_did_not_run_before_is_held_until_the_end_and_not_started(site: Site) -> None:
    site.machine(["systemctl", "stop", UNITS[1]], 1)
    site.good(*WHOLE[1:6])
    assert kept.held(site.tree) == ("b",)
    site.good(Action.FINISH)
    assert (site.up, kept.held(site.tree)) == ({UNITS[0]}, ())


@pytest.mark.parametrize("which", ["hold", "let"])
def test_a_unit_that_knows_half_of_the_conditions_is_of_an_older_nearsocket(site: Site, which: str) -> None:
    path = site.tree.current / "systemd" / UNITS[0]
    path.write_text(path.read_text().replace("|!" if which == "hold" else "let-start", "nothing"))
    stops = [str(look) for look in site.do(Action.PREFLIGHT).stops]
    assert ["would start by itself at the boot, unproven" in stop for stop in stops] == [True]


def test_a_deploy_is_let_in_once_the_held_replica_is_let_go_by_hand_and_the_upgrade_ends(site: Site) -> None:
    """The way out where what is served has to change before a replica comes up again."""
    site.good(*WHOLE[:5])
    site.do(Action.START, replica="a")
    site.machine.change(broken=[UNITS[1]])
    assert site.do(Action.START, replica="b", measured=("a", "b")).error is not None
    installation = Installation(site.root)
    installation.system = site.machine
    better = generation({"a": waiting("a"), "b": f"better{waiting('b')}"})
    refused = installation.apply(better)
    assert "replica b did not come up behind the driver" in str(refused.error)
    disk.remove(site.tree.at(places.hold_file("b")))
    site.machine.change(broken=[])
    assert installation.apply(better).error is None
    site.good(Action.START, Action.FINISH)
    assert (site.up, kept.held(site.tree)) == (set(UNITS), ())


def test_the_one_file_of_an_older_nearsocket_makes_room_for_one_a_replica(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    old = tree.at(places.HOLD_STARTS)
    old.parent.mkdir(parents=True)
    old.write_text("an upgrade\n")
    assert kept.held(tree) == ()
    kept.hold(tree, ["a", "b"], "an upgrade")
    assert kept.held(tree) == ("a", "b")
    kept.let_go(tree, "a")
    kept.let_go(tree, "a")
    assert kept.held(tree) == ("b",)
    kept.let_all_go(tree)
    assert not old.exists()


def test_what_an_earlier_drain_came_to_is_told_once_and_decides_no_start(site: Site) -> None:
    left = site.tree.at(places.hook_failed("a", "drain"))
    disk.make_folders(left.parent)
    left.write_text("exit code 1: of an earlier stop")
    assert site.good(Action.PREPARE).notes == (), "of a stop before this one"
    left.write_text("exit code 1: load balancer does not answer")
    site.machine.fault("lock")
    assert site.do(Action.UPGRADE).error is not None
    site.machine.fault()
    site.good(Action.BACK, Action.REBOOT, Action.AFTER)
    assert site.do(Action.START, replica="a").error is None
    assert (site.up, kept.held(site.tree), hook.failed(site.tree, "a")) == ({UNITS[0]}, ("b",), None)


def test_an_upgrade_that_an_older_nearsocket_began_is_refused_before_anything_with_a_way_out_that_ends_it(site: Site) -> None:
    site.good(*WHOLE[:5])
    for unit in UNITS:
        (site.tree.current / "systemd" / unit).write_text(f"engine\nConditionPathExists=!{places.HOLD_STARTS}\n")
    for one_file in (True, False):
        if one_file:
            kept.let_all_go(site.tree)
            site.tree.at(places.HOLD_STARTS).write_text("an upgrade\n")
        else:
            kept.hold(site.tree, ["a", "b"], "an upgrade")
        for action in (Action.STATUS, Action.START):
            answer = site.do(action, replica="a", forward=True)
            assert f"found {UNITS[0]}" in str(answer.error)
            assert "of an older nearsocket" in str(answer.error)
            assert "end it with the nearsocket that began it" in str(answer.hint)
    assert (site.up, site.state.started) == (set(), ()), "refused before its first change"
    kept.let_all_go(site.tree)  # rm -r
    installation = Installation(site.root)
    installation.system = site.machine
    assert installation.apply(generation({name: waiting(name) for name in "ab"}, extra=records("a", "b"))).error is None
    site.good(Action.STATUS, *WHOLE[1:])
    assert (site.up, kept.held(site.tree), site.versions) == (set(UNITS), (), {NEW})


def test_a_killed_steps_leave_to_start_ends_with_the_next_step(site: Site) -> None:
    """Whoever resumes has not started it yet: until then neither a crash nor a person does."""
    site.good(*WHOLE[:5])
    site.killed_at(f"start -- {UNITS[0]}", Action.START, before=False, replica="a")
    assert site.tree.at(places.let_start("a")).exists()
    site.good(Action.PREPARE)
    site.machine.change(active={})  # a crash; systemd starts it again, a person the other
    site.machine(["systemctl", "start", *UNITS], 1)
    assert (site.up, kept.held(site.tree)) == (set(), ("a", "b"))
    site.good(Action.UPGRADE, Action.REBOOT, Action.AFTER, Action.START)
    assert (site.up, kept.held(site.tree)) == (set(UNITS), ())
