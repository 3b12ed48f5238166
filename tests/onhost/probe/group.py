"""A group of the stand-in's ranks on this machine, and what groups leave behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import lab.standins.engine
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.planning import LOG
from nearsocket.model.probe.starts import ProbeOrder, Started, StartOrder
from nearsocket.onhost.probe import entry

ENGINE = str(Path(lab.standins.engine.__file__).parent)


def run(count: int = 2, look: bool = False, limit_s: float = 60.0, argv: tuple[str, ...] = (), **environment: str) -> Started:
    """One start of the stand-in's ranks on this machine."""
    places = tuple(Place(number, node=0, near=(0,)) for number in range(count))
    variables = {**LOG, "NCCL_CUMEM_ENABLE": "0", "PYTHONPATH": ENGINE, **environment}
    ranks = RanksOrder(Backend.STANDIN, places, (4096, 12 << 10, 1 << 20), 2, 0.02, limit_s, variables)
    return entry.each(ProbeOrder((StartOrder("a", ranks, argv, sys.executable),), look))[0]


def launched() -> set[int]:
    """Every rank and every ranks' parent of this machine, whoever started it."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if "nearsocket.onhost.probe.launcher" in (folder / "cmdline").read_text():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def leftovers() -> list[str]:
    """Folders of probes, and nccl- files that no process maps: other ranks of this machine map theirs."""
    names = {str(path) for path in Path("/dev/shm").glob("nccl-*")}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            names -= {word for line in maps.read_text().splitlines() if "/nccl-" in line for word in line.split()[5:6]}
        except OSError:
            continue
    return [*map(str, Path("/run/nearsocket").glob("probe-*")), *sorted(names)]


def wait_for(holds: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Look until it holds; the test fails where it never does."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        os.sched_yield()
