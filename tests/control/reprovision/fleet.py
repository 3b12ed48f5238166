"""A fleet of stand-in machines: the real steps on each, over a transport that a reboot takes along."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nearsocket.control.reprovision.job import Reprovision
from nearsocket.control.rollout import run
from nearsocket.control.rollout.came import Came
from nearsocket.control.rollout.run import Manner
from nearsocket.control.target import Ssh, Target, Way
from nearsocket.control.transport import Answer as Said
from nearsocket.control.transport import Transport, TransportError, Trouble
from nearsocket.control.transport.process import Children
from nearsocket.model.driver import orders
from nearsocket.model.driver.orders import Action, Order
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.rollout.report import End, RolloutReport
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect import command
from nearsocket.onhost.reprovision import entry, facts, kept
from nearsocket.onhost.reprovision.apt import Apt
from tests.onhost.reprovision.conftest import Site
from tests.onhost.reprovision.standin import NEW


class Clock:
    """Time that passes by pauses alone; machines hear of each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.heard: list[Callable[[], None]] = []

    def pause(self, seconds: float) -> None:
        self.now += seconds
        for hear in self.heard:
            hear()


#: Hosts are looked at side by side, and what a stand-in replaces is the whole process's: one of them at a time.
_ONE = threading.Lock()


class Line(Transport):
    """The way to one stand-in machine. `down_s`: until its shutdown takes sshd along; `away_s`: from then to its next boot."""

    def __init__(self, name: str, site: Site, clock: Clock) -> None:
        self.name, self.site, self.clock = name, site, clock
        self.down_s = 4.0
        self.away_s: float | None = 20.0
        self.ends_at: float | None = None
        self.dies_at: Action | None = None
        self.asked: list[str] = []
        self.rollout: Progress | None = None
        self.unproven = False
        clock.heard.append(self.tick)

    @property
    def machine(self) -> Any:
        return self.site.machine

    def tick(self) -> None:
        if self.ends_at is None and self.machine.state["rebooting"]:
            self.ends_at = self.clock.now
        if self.ends_at is not None and self.away_s is not None and self.clock.now >= self.ends_at + self.down_s + self.away_s:
            self.ends_at = None
            self.machine.boot()

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Said:
        self.tick()
        if self.ends_at is not None and self.clock.now >= self.ends_at + self.down_s:
            raise TransportError(Trouble.REFUSED, "expected an SSH connection, found: connection refused", "look at sshd")
        order = orders.order_from_json(stdin.decode())
        self.asked.append(order.action.value)
        if order.action is self.dies_at:
            self.dies_at = None
            self._do(order)
            raise KeyboardInterrupt
        return Said(self._do(order), "", 0.0)

    def _do(self, order: Order) -> bytes:
        tree = self.site.tree
        with _ONE:
            before = (facts.host_now, command.run)
            facts.host_now, command.run = lambda *_: self.machine.host(), self.machine  # type: ignore[assignment]
            try:
                made = entry._locked(order, tree, Systemctl(self.machine), Apt(str(tree.at(kept.NEXT)), self.machine))
            finally:
                facts.host_now, command.run = before
        return made.to_json().encode()


class Fleet:
    """Stand-in machines by name, and rollouts over them."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.clock = Clock()
        self.lines = {name: Line(name, Site(folder / name), self.clock) for name in names}
        self.targets = [Target(name, Way.SSH, ssh=Ssh(name)) for name in names]

    def go(self, to: str = NEW, resume: bool = False, came: Came | None = None, **more: Any) -> RolloutReport:
        limit_s = more.pop("reboot_limit_s", 300.0)
        made = Reprovision(
            to, "ops", (), 60.0, limit_s, accept_unknown=True, clock=lambda: self.clock.now, pause=self.clock.pause, **more
        )
        anew = more.get("anew", False)
        manner = Manner("ops", resume=resume and not anew, anew=anew, check=more.get("check", False))
        return run.rollout(made, self.targets, manner, came or Came())

    def ends(self, report: RolloutReport) -> list[End]:
        return [host.end for host in report.hosts]

    def site(self, name: str) -> Site:
        return self.lines[name].site
