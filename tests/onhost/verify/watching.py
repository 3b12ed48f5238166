"""The timer's look at a replica whose start was judged, as tests take it."""

from __future__ import annotations

import pytest

from nearsocket.onhost.verify import atstart, supervise, watch
from tests.onhost.verify.machine import Machine, Ranks, start


def judged(machine: Machine, found: Ranks, node: int = 0) -> None:
    """The replica's start was judged: its ranks run and hold GPUs on that node."""
    machine.gpus(node, found[1:])
    machine.runs(*found)
    machine.managed(start(verify={"request": False, "timeout_s": 90}))
    assert atstart.main(["--replica=a"], machine.tree) == 0


def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are made in this process, so that what a test puts in their place can fail it or remember."""
    monkeypatch.setattr(supervise, "within", lambda limit_s, work, what: work(None))


def look(machine: Machine) -> None:
    """One look at every replica."""
    assert watch.main(str(machine.tree.root)) == 0
