"""The program's action `probe`: an order on standard input, the starts' results on standard output."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Callable, Optional

import nearsocket
from nearsocket.model import programs
from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe import starts
from nearsocket.model.probe.starts import ProbeOrder, Started, StartOrder
from nearsocket.model.snapshot import Snapshot
from nearsocket.onhost.apply import disk, mounting
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.collect.runner import run_jobs
from nearsocket.onhost.collect.sources import JOBS
from nearsocket.onhost.probe import fill, supervise
from nearsocket.onhost.probe.own import Program, program

#: What tells where the ranks' buffers lie and where their GPUs are.
SOURCES = ("nvml", "nodes", "cpus", "pci", "meminfo", "mounts", "processes", "nccl.logs", "nccl.conf", "driver.files", "containers")
_LOOK_S = 45.0


def run(text: str) -> bytes:
    """Carry the order out; the answer's line. Raises NearsocketError where the order or this host cannot be used."""
    return starts.answer(tuple(each(starts.order_from_json(text))))


def each(order: ProbeOrder, own: Optional[Program] = None) -> list[Started]:
    """The starts one after the other, each in a folder of its own that goes with it."""
    mine = own or program()
    found = []
    for one in order.starts:
        found.append(once(one, mine, order.look, supervise.reader_gone))
        if found[-1].failed == supervise.GONE:
            break
    return found


def once(order: StartOrder, own: Program, wanted: bool, gone: Callable[[], bool]) -> Started:
    """One start in a folder of its own. `wanted`: the host is looked at; `gone`: as `supervise.run` takes it.

    Raises NearsocketError, OSError where it cannot be made ready.
    """
    base = Path(programs.RUN)
    own_base = os.geteuid() == 0 and not base.exists()
    if os.geteuid() == 0:
        disk.make_folders(base)
        _sweep(base)
    folder = Path(tempfile.mkdtemp(prefix=f"probe-{os.getpid()}-", dir=base if os.geteuid() == 0 else None))
    try:
        (folder / "log").mkdir(0o777)
        (folder / "log").chmod(0o777)  # a container's user may be any
        folder.chmod(0o711)
        if order.argv:
            disk.write_new(folder / "env", supervise.environment_file(order.ranks.environment), 0o600)
        if order.shm:
            _shm(folder / "shm", order.shm)
        with fill.filled(order.fill):
            return supervise.run(order, own, folder, look if wanted else lambda: None, gone)
    finally:
        _away(folder)
        if own_base:  # an unmanaged host has none; one with something in it stays
            with contextlib.suppress(OSError):
                base.rmdir()


def _sweep(base: Path) -> None:
    """Remove what a probe that was killed left: a folder whose maker is gone."""
    for folder in base.glob("probe-*-*"):
        maker = folder.name.split("-")[1]
        if maker.isdigit() and not Path(f"/proc/{maker}").exists():
            _away(folder)


def _shm(folder: Path, options: str) -> None:
    """Have the ranks' /dev/shm. Raises NearsocketError."""
    folder.mkdir(0o755)
    reason = mounting.tmpfs(folder, options)
    if reason is not None:
        raise NearsocketError(f"expected to mount a /dev/shm for the ranks, found: {reason}", "run it as root (--sudo)")


def _away(folder: Path) -> None:
    """The folder of a start is gone, with what is mounted there."""
    with contextlib.suppress(OSError):
        mounting.release(Tree(), folder)
    shutil.rmtree(folder, ignore_errors=True)


def look() -> Snapshot:
    """The host while a group holds its communicator: what placement is judged by, and no more."""
    jobs = [job for job in JOBS if job.name in SOURCES]
    sources = run_jobs(jobs, Context(), time.monotonic() + _LOOK_S)
    taken_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = {"version": nearsocket.__version__}
    return Snapshot("the probe's host", taken_at, None, {"uid": os.geteuid()}, said, sources)
