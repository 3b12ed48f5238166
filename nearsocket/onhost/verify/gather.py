"""One look at one replica: its processes, its start's logs, the machine's nodes and GPUs, and the verdict on them."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, Optional

from nearsocket.model import places, prove, read
from nearsocket.model.finding import Evidence, Finding, failed, passed
from nearsocket.model.host import Host
from nearsocket.model.prove import Around
from nearsocket.model.read import gpus
from nearsocket.model.snapshot import Snapshot, Source
from nearsocket.model.start import Start
from nearsocket.model.verdict import Trigger, Verdict
from nearsocket.onhost.apply import disk
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.files import Context, absent, ok, text_or_none
from nearsocket.onhost.collect.processes import processes
from nearsocket.onhost.collect.runner import Job, run_jobs
from nearsocket.onhost.collect.sources import JOBS
from nearsocket.onhost.verify import basis, cgroups, devices, logs, publish

#: What tells nodes and GPUs; the rest of a snapshot says nothing on one start.
_SOURCES = ("nvml", "nodes", "cpus", "pci", "meminfo", "driver.files")


def start_folder(tree: Tree, replica: str) -> Optional[str]:
    """The folder of the replica's newest start; None where nothing says it."""
    try:
        text = disk.read(tree.at(places.start_env(replica)), 1 << 16).decode("utf-8", "replace")
    except OSError:
        return None
    return places.start_folder(text, replica) or None


def look(tree: Tree, start: Start, trigger: Trigger, limit_s: float, notes: tuple[str, ...] = ()) -> Verdict:
    """The verdict as of now. Reads only; every source is under the time limit."""
    began = time.monotonic()
    folder = start_folder(tree, start.replica)
    pids = cgroups.pids(tree.root, start.slice, start.unit)
    snapshot, said = _snapshot(tree, start, folder, pids or (), began + limit_s)
    host = read.host(snapshot)
    matter = [process.pid for process in host.processes]
    around = Around(
        start=Path(folder).name if folder else "",
        now=snapshot.taken_at,
        trigger=trigger,
        running=None if pids is None else len(pids),
        boot_id=snapshot.boot_id,
        notes=(*notes, *said, *_strangers(snapshot, start, pids or ())),
        took_s=round(time.monotonic() - began, 3),
        extra=_visible(snapshot, host, start),
        basis=basis.take(matter, sorted(set(pids or ()) - set(matter)), str(tree.at(folder)) if folder else ""),
    )
    return prove.prove(host, start, around)


def _snapshot(
    tree: Tree, start: Start, folder: Optional[str], pids: Collection[int], end: float
) -> tuple[Snapshot, tuple[str, ...]]:
    told: list[str] = []
    jobs = [job for job in JOBS if job.name in _SOURCES]
    jobs.append(Job("processes", partial(processes, only=frozenset(pids)), 24, after=("nvml",)))
    jobs.append(Job("nccl.logs", partial(_logs, tree.at(folder) if folder else None), 10, after=("processes",)))
    sources = run_jobs(jobs, Context(tree.root), end)
    found = sources["nccl.logs"]
    if found.reason:
        told.append(found.reason)
    taken_at = publish.now()
    boot_id = text_or_none("/proc/sys/kernel/random/boot_id")
    return Snapshot(start.replica, taken_at, boot_id, {"uid": os.geteuid()}, {}, sources), tuple(told)


def _logs(folder: Optional[Path], context: Context) -> Source:
    if folder is None:
        return absent("this start has no folder for NCCL's logs")
    entries: Any = context.result("processes").data or []
    found, notes = logs.read(folder, [entry for entry in entries if not entry["vanished"]])
    return ok(found, "; ".join(notes)[:300] or None)


def _visible(snapshot: Snapshot, host: Host, start: Start) -> tuple[Finding, ...]:
    """Whether the replica may still open its GPUs; nothing where the rules cannot be read or the GPUs' devices are not known."""
    ranks = [process for process in host.processes if process.gpus]
    minors = {at: file.minor for at, file in gpus.information(snapshot).items()}
    nodes = [f"/dev/nvidia{minors[pci]}" for pci in start.gpus if minors.get(pci) is not None]
    if not ranks or not nodes:
        return ()
    lost, unclear = devices.denied(ranks[0].pid, [*nodes, "/dev/nvidiactl"])
    subject, shown = f"replica {start.replica}", Evidence(f"device rules of pid {ranks[0].pid}", f"{', '.join(nodes)} asked for")
    if lost:
        summary = f"its container may no longer open {', '.join(lost)}: what it opens next fails; what is open goes on"
        made = failed(subject, summary, (shown,), f"systemctl restart {start.unit}  # and see host.daemon-reload-risk")
    elif unclear:
        return ()
    else:
        made = passed(subject, f"the device rules in force let it open each of its {len(nodes)} GPUs", (shown,))
    return (dataclasses.replace(made, id="container.gpus-visible"),)


def _strangers(snapshot: Snapshot, start: Start, pids: Collection[int]) -> list[str]:
    """Processes on the replica's GPUs that are not of the replica, by NVML."""
    data = snapshot.data("nvml")
    told = data.get("gpus", []) if isinstance(data, dict) else []
    return [
        f"process {one['pid']} works on GPU {gpu['pci']} and is not of this replica"
        for gpu in told
        if gpu["pci"] in start.gpus
        for one in gpu["processes"] or []
        if one["pid"] not in pids
    ]
