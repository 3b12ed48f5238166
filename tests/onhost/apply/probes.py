"""Probes for the applies' tests: orders of real shape, and ranks that are played or real (the lab's stand-in for NCCL)."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import lab.standins.engine
from nearsocket.model import read
from nearsocket.model.generation import Generation
from nearsocket.model.host import Host as ReadHost
from nearsocket.model.order import Order
from nearsocket.model.outcome import Outcome
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.path import PathProbe
from nearsocket.model.probe.planning import LOG
from nearsocket.model.probe.starts import Row, Started, StartOrder
from nearsocket.onhost.apply.pathprobe import Ways
from nearsocket.onhost.apply.run import apply
from nearsocket.onhost.apply.systemctl import Runner, Systemctl
from tests.onhost.apply.made import IMAGE, PROGRAM, Host
from tests.plan.hosts import four_on_one_socket

PLACES = (Place(0, node=0, near=(0,)), Place(1, node=0, near=(0,)))
GPUS = ("0000:c1:00.0", "0000:c2:00.0")
IDLE = read.host(four_on_one_socket())


def probe(replica: str = "a", backend: Backend = Backend.GLOO, limit_s: float = 30.0, **changes: str) -> PathProbe:
    """A replica's probe, its container named as a deploy names it; `changes`: what it rests on."""
    ranks = RanksOrder(backend, PLACES, (4096, 12 << 10), 2, 0.02, limit_s)
    start = StartOrder("as configured", ranks, ("docker", "run"), "", "docker", f"nearsocket-path-{replica}-0")
    basis = {"image": IMAGE, "driver": "1", "environment": "e", "fingerprint": "f", "binding": "b", **changes}
    return PathProbe(replica, start, gpus=GPUS, near=(0,), **basis)  # type: ignore[arg-type]


def standin(fault: str = "", limit_s: float = 30.0) -> PathProbe:
    """Real ranks with the stand-in for NCCL, in no container."""
    made = probe(backend=Backend.STANDIN, limit_s=limit_s)
    values = {**LOG, "NCCL_CUMEM_ENABLE": "0", "PYTHONPATH": str(Path(lab.standins.engine.__file__).parent)}
    ranks = dataclasses.replace(made.start.ranks, environment={**values, "NEARSOCKET_PROBE_FAULT": fault})
    return dataclasses.replace(made, start=StartOrder("as configured", ranks, python=sys.executable))


def good(start: StartOrder) -> Started:
    """Every sum right, by gloo, which has no buffers to judge."""
    rows = tuple(Row(rank, 0, size, 5, 10.0, 11.0, 9.0, 10.0, 0, None) for rank in (0, 1) for size in start.ranks.sizes)
    return Started(start.name, rows, {0: {"torch": "2.11"}}, pids=(1, 2))


@dataclass
class Played:
    """A host's ways: ranks that `answer` plays in a container that is there while they run. `log`: what was done, in order."""

    host: Host
    answer: Callable[[StartOrder], Started] = good
    idle: ReadHost = IDLE
    log: list[str] = field(default_factory=list)

    def ways(self) -> Ways:
        return Ways(self._look, self._relieve, self._run)

    def running(self) -> list[str]:
        return sorted(unit for unit in self.host.system.state["active"] if unit.startswith("nearsocket-x-"))

    def _look(self) -> ReadHost:
        self.log.append("look")
        return self.idle

    def _relieve(self, replica: str) -> None:
        self.log.append(f"relieve {replica}, running {self.running()}")

    def _run(self, start: StartOrder) -> Started:
        before = self.host.system.state["containers"]
        assert start.container not in before
        self.host.system.change(containers=[*before, start.container])
        self.log.append(f"run {start.container}")
        made = self.answer(start)
        self.host.system.change(containers=before)
        return made


def applied(
    host: Host, made: Generation | None, probes: tuple[PathProbe, ...], ways: Ways, run: Runner | None = None, **more: object
) -> Outcome:
    """One apply with those probes."""
    order = Order(made, probes=probes, **more)  # type: ignore[arg-type]
    return apply(order, PROGRAM, host.tree, Systemctl(run or host.system), ways=ways)
