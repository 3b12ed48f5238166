"""Somebody else at work on a host, or an answer that is lost: no reason to take a driver back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from nearsocket.control import verify
from nearsocket.control.reprovision import ask, measuring
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.control.target import Target
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.model.driver.orders import Action, Answer, Order, Phase
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout.report import End
from nearsocket.onhost.apply import lock
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.reprovision import kept
from tests.control.reprovision.fleet import Fleet, Line
from tests.onhost.reprovision.conftest import UNITS
from tests.onhost.reprovision.standin import NEW, OLD


@contextlib.contextmanager
def held_for(held: contextlib.AbstractContextManager[None], seconds: float) -> Iterator[None]:
    """A colleague at work on the host, who ends by himself."""
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        with held:
            begun.set()
            over.wait(seconds)

    colleague = threading.Thread(target=work)
    colleague.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        colleague.join()


def beside(
    monkeypatch: pytest.MonkeyPatch, action: Action, reading: Callable[[Tree], contextlib.AbstractContextManager[None]]
) -> None:
    """The first host's first step of that kind meets a reader."""
    real = Line._do
    met: list[Order] = []

    def do(line: Line, order: Order) -> bytes:
        if order.action is action and line.name == "r1" and not met:
            met.append(order)
            with reading(line.site.tree):
                return real(line, order)
        return real(line, order)

    monkeypatch.setattr(Line, "_do", do)


def test_a_colleagues_look_at_the_moment_of_the_reboot_is_waited_out(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    beside(monkeypatch, Action.REBOOT, lambda tree: held_for(lock.shared(tree, 0), 0.5))
    report = fleet.go()
    assert fleet.ends(report) == [End.VERIFIED, End.VERIFIED]
    assert fleet.site("r1").versions == {NEW}


def test_a_colleagues_deploy_before_the_reboot_is_waited_out(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at the boot id, which only reads, meets who writes."""
    real = Line._do
    met: list[Order] = []

    def do(line: Line, order: Order) -> bytes:
        if order.action is Action.STATUS and line.name == "r1" and "upgrade" in line.asked and not met:
            met.append(order)
            with held_for(lock.exclusive(line.site.tree, "deploy 7 by colleague", 0), 0.4):
                return real(line, order)
        return real(line, order)

    monkeypatch.setattr(Line, "_do", do)
    assert fleet.ends(fleet.go()) == [End.VERIFIED, End.VERIFIED]
    assert met


@pytest.mark.parametrize("action", [Action.UPGRADE, Action.REBOOT])
def test_one_that_lasts_ends_the_rollout_and_takes_nothing_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    monkeypatch.setattr(ask, "WAIT_S", 0.3)
    beside(monkeypatch, action, lambda tree: lock.shared(tree, 0))
    report = fleet.go()
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    assert "found another at work" in str(report.hosts[0].reason)
    assert "--resume" in str(report.hosts[0].hint)
    if action is not Action.UPGRADE:
        assert fleet.site("r1").versions == {NEW}
    assert not fleet.site("r1").state.back
    assert fleet.ends(fleet.go(resume=True)) == [End.VERIFIED, End.VERIFIED]


def test_one_before_anything_is_stopped_is_a_host_that_was_not_touched(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "WAIT_S", 0.3)
    beside(monkeypatch, Action.PREPARE, lambda tree: lock.shared(tree, 0))
    report = fleet.go()
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    assert str(report.hosts[0].reason).startswith("expected to be the one apply on this host, found another at work")
    assert "WAY BACK" not in str(report.hosts[0].reason)
    assert str(report.hosts[0].hint).endswith("then --resume")
    assert "back" not in fleet.lines["r1"].asked
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({OLD}, set(UNITS))


@pytest.mark.parametrize("action", [Action.PREPARE, Action.UPGRADE, Action.REBOOT, Action.AFTER])
def test_a_resumed_host_whose_replicas_serve_behind_the_driver_stays_whichever_step_fails(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    line = fleet.lines["r1"]
    line.machine.change(vanishing=[UNITS[1]])
    fleet.go()
    assert fleet.site("r1").up == {UNITS[0]}
    real = Line._do

    def do(one: Line, order: Order) -> bytes:
        if order.action is action and one.name == "r1":
            return Answer(order.action, one.site.state, error="Input/output error", touched=True).to_json().encode()
        return real(one, order)

    monkeypatch.setattr(Line, "_do", do)
    report = fleet.go(resume=True)
    assert fleet.ends(report) == [End.FAILED, End.UNTOUCHED]
    assert "so it stays" in str(report.hosts[0].reason)
    assert (fleet.site("r1").versions, fleet.site("r1").up) == ({NEW}, {UNITS[0]})


def test_an_answer_that_is_lost_while_proofs_are_read_is_asked_for_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which replicas were down before is in that answer: without it one that was down looks like one that failed."""
    site = fleet.site("r1")
    site.machine(["systemctl", "stop", UNITS[1]], 1)
    lost: list[str] = []

    def proven(target: Target, way: Line, *_: object) -> verify.HostVerdicts:
        down = sorted({"a", "b"} - {unit[-9] for unit in way.site.up})
        if target.name == "r1" and way.site.state.phase.value == "proven" and not lost:
            lost.append("next")
        return verify.HostVerdicts(target.name, silent=tuple(verify.Silent(name, "its unit is not running") for name in down))

    monkeypatch.setattr(verify, "one", proven)
    real = Line._do

    def do(line: Line, order: Order) -> bytes:
        if order.action is Action.STATUS and line.name == "r1" and lost == ["next"]:
            lost.append("gone")
            raise TransportError(Trouble.TIMEOUT, "no answer in time", "look at the host")
        return real(line, order)

    monkeypatch.setattr(Line, "_do", do)
    report = fleet.go()
    assert lost == ["next", "gone"]
    assert fleet.ends(report)[0] is End.VERIFIED
    assert (site.versions, site.up) == ({NEW}, {UNITS[0]})


def test_a_host_turned_round_again_is_not_said_to_be_proven(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a way back started says nothing of the driver that failed before."""
    site = fleet.site("r1")

    def slower(*_: object) -> Compared:
        raise NearsocketError("all-reduces are slower than with the driver before")

    with monkeypatch.context() as first:
        first.setattr(measuring, "compared", slower)
        assert fleet.ends(fleet.go()) == [End.ROLLED_BACK, End.UNTOUCHED]
    assert (site.versions, site.state.back) == ({OLD}, True)
    kept.write(site.tree, site.state.at(Phase.PROVEN, started=UNITS))  # its client was gone before it was closed
    real = Line._do

    def do(one: Line, order: Order) -> bytes:
        if order.action is Action.PREPARE and one.name == "r1":
            return Answer(order.action, one.site.state, error="a unit's stop was cancelled", touched=True).to_json().encode()
        return real(one, order)

    monkeypatch.setattr(Line, "_do", do)
    report = fleet.go(anew=True)
    assert fleet.ends(report)[0] is not End.VERIFIED
    assert "was proven before" not in str(report.hosts[0].reason)
