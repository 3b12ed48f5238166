"""Processes that use a GPU or an nccl- file or belong to an engine, with what placement depends on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from typing import Any, Optional

from nearsocket.model import cpulist
from nearsocket.model.read import titles
from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import buffers, children, procfs, redact
from nearsocket.onhost.collect.files import Context, ok, read_text

STEP_LIMIT_S = 3.0
#: Together under the source's limit in sources.py.
SCAN_LIMIT_S, DETAIL_LIMIT_S = 10.0, 12.0
#: Characters of JSON that all processes together may take, far under the cap of the whole answer, and those of one
#: process's environment. Any user can start processes that look like an engine; they must not cost the others their place.
SOURCE_CAP, ENVIRON_CAP = 16 << 20, 1 << 16
_NVIDIA = b"/dev/nvidia"
_SHM = "/dev/shm"  # noqa: S108 (looked at, never written)

_EMPTY: dict[str, Any] = {
    "ppid": 0,
    "start_ticks": 0,
    "uid": None,
    "comm": "",
    "command": [],
    "status": "",
    "cgroup": "",
    "cpus": "",
    "policy_line": None,
    "environ": None,
    "environ_reason": None,
    "shm_mount": None,
    "shm_bytes": None,
    "nspid": [],
    "devices": [],
    "buffers": [],
    "buffers_by": None,
    "buffers_reason": None,
    "unread": None,
    "vanished": False,
}


def processes(context: Context, only: Optional[Collection[int]] = None) -> Source:
    """Every process that matters, `only` among these where given. The reason says how many others could not be looked at."""
    gpu_bytes = _gpu_bytes(context.result("nvml").data)
    has_devices = context.has_nvidia_driver
    pids = sorted({*procfs.pids(), *gpu_bytes} if only is None else set(only))
    scans = children.stepwise(pids, lambda pid: _scan(pid, has_devices), STEP_LIMIT_S, context.within(SCAN_LIMIT_S, 0.5))
    chosen: list[tuple[int, Optional[int]]] = []
    ranks: dict[int, int] = {}
    unreadable: list[int] = []
    unreached = 0
    for pid, scan in zip(pids, scans):
        if scan.parts.get("wanted") or scan.hung or pid in gpu_bytes:
            chosen.append((pid, scan.parts.get("start_ticks")))
            # What NVML and the mapped files prove comes before what a process says of itself.
            ranks[pid] = 0 if pid in gpu_bytes else 1 if scan.parts.get("wanted") == _PROVEN else 2
        elif scan.parts.get("unreadable"):
            unreadable.append(pid)
        elif scan.reason:
            unreached += 1
    chosen.sort(key=lambda one: (ranks[one[0]], one[0]))
    found = children.stepwise(chosen, lambda one: describe(*one), STEP_LIMIT_S, context.within(DETAIL_LIMIT_S))
    entries = []
    left = SOURCE_CAP
    left_out = 0
    for (pid, _), one in zip(chosen, found):
        entry: dict[str, Any] = {"pid": pid, **_EMPTY, **one.parts, "gpu_bytes": gpu_bytes.get(pid, {})}
        entry["unread"] = entry["unread"] or one.reason
        size = len(json.dumps(entry))
        if size > left:
            entry = {"pid": pid, **_EMPTY, "gpu_bytes": gpu_bytes.get(pid, {}), "unread": _NO_ROOM}
            left_out += 1
        left -= min(left, size)
        entries.append(entry)
    reasons = [f"{left_out} of {len(chosen)} processes were left out: {_NO_ROOM}"] if left_out else []
    if unreadable:
        named = ", ".join(map(str, unreadable[:3])) + (", ..." if len(unreadable) > 3 else "")
        reasons.append(f"no permission to look into {len(unreadable)} of {len(pids)} processes (pid {named})")
    if unreached:
        reasons.append(f"{unreached} of {len(pids)} processes were not looked at in time")
    reason = "; ".join(reasons) or None
    if reasons and not entries and not _vouched(context):
        # Nothing found among those that could be read is no proof that there is none.
        return Source(SourceStatus.DENIED if unreadable else SourceStatus.TIMEOUT, reason=reason)
    return ok(entries, reason)


#: The signs of a process that matters: a mapped or open file, or only its words.
_PROVEN, _CLAIMED = "proven", "claimed"
_NO_ROOM = f"all processes together take more than {SOURCE_CAP >> 20} MiB"


def _vouched(context: Context) -> bool:
    """Whether no process can hold a GPU unseen: there is no driver, or NVML listed the processes of every GPU."""
    nvml = context.result("nvml").data
    if isinstance(nvml, dict):
        return all(gpu["processes"] is not None for gpu in nvml["gpus"])
    return not context.has_nvidia_driver


def _gpu_bytes(nvml: Any) -> dict[int, dict[str, Optional[int]]]:
    found: dict[int, dict[str, Optional[int]]] = {}
    for gpu in nvml["gpus"] if isinstance(nvml, dict) else []:
        for one in gpu["processes"] or []:
            found.setdefault(one["pid"], {})[gpu["pci"]] = one["used_bytes"]
    return found


def _scan(pid: int, has_devices: bool) -> Iterator[dict[str, Any]]:
    """Whether a process matters: cheap signs first, and never the pages themselves."""
    try:
        stat = procfs.stat(pid)
        if stat.kernel_thread:
            return
        yield {"start_ticks": stat.start_ticks}
        if titles.engine(procfs.command(pid), stat.comm) is not None:
            yield {"wanted": _CLAIMED}
        signs = (buffers.MARK, _NVIDIA) if has_devices else (buffers.MARK,)
        if buffers.maps_any(pid, signs):
            yield {"wanted": _PROVEN}
            return
        if has_devices and any(link.startswith(_NVIDIA.decode()) for link in procfs.file_links(pid).values()):
            yield {"wanted": _PROVEN}
    except PermissionError:
        yield {"unreadable": True}
    except (FileNotFoundError, ProcessLookupError):
        return  # it ended: no process, nothing to say


def describe(pid: int, start_ticks: Optional[int]) -> Iterator[dict[str, Any]]:
    """One process's facts, part by part; its buffers, which decide most, come before what its user chose to write (its words).

    `vanished` where it ended, or where another process has its number now.
    """
    try:
        stat = procfs.stat(pid)
        if start_ticks is not None and stat.start_ticks != start_ticks:
            yield {"vanished": True}
            return
        yield _identity(pid, stat)
        for part in (_buffers, _words, _policy, _devices, _shm):
            yield part(pid)
        if procfs.stat(pid).start_ticks != stat.start_ticks:
            yield {"vanished": True}
    except (FileNotFoundError, ProcessLookupError):
        yield {"vanished": True}


def _identity(pid: int, stat: procfs.Stat) -> dict[str, Any]:
    folder = procfs.PROC / str(pid)
    status = read_text(folder / "status")
    uid = re.search(r"^Uid:\s*(\d+)", status, re.MULTILINE)
    nspid = re.search(r"^NSpid:\s*([\d\s]+?)$", status, re.MULTILINE)
    return {
        "ppid": stat.ppid,
        "start_ticks": stat.start_ticks,
        "uid": int(uid[1]) if uid else None,
        "comm": stat.comm,
        "status": status,
        "cgroup": read_text(folder / "cgroup"),
        "cpus": cpulist.render(os.sched_getaffinity(pid)),
        "nspid": [int(word) for word in nspid[1].split()] if nspid else [pid],
    }


def _words(pid: int) -> dict[str, Any]:
    words: dict[str, Any] = {"command": redact.argv(procfs.command(pid))}
    try:
        pairs = procfs.environ(pid)
    except PermissionError:
        return {**words, "environ_reason": "no permission"}
    if pairs is None:
        return {**words, "environ_reason": "wiped"}
    if sum(len(name) + len(value) for name, value in redact.allowed(pairs).items()) > ENVIRON_CAP:
        return {**words, "environ_reason": f"larger than {ENVIRON_CAP >> 10} KiB"}
    return {**words, "environ": redact.environ(pairs)}


def _buffers(pid: int) -> dict[str, Any]:
    try:
        return buffers.measure(procfs.PROC, pid)
    except PermissionError as error:
        return {"buffers_reason": f"no permission ({error.strerror})"}


def _policy(pid: int) -> dict[str, Any]:
    try:
        return {"policy_line": buffers.first_line(procfs.PROC / str(pid) / "numa_maps")}
    except PermissionError:
        return {}


def _devices(pid: int) -> dict[str, Any]:
    try:
        links = procfs.file_links(pid).values()
    except PermissionError:
        return {}
    return {"devices": sorted({link for link in links if link.startswith(_NVIDIA.decode())})}


def _shm(pid: int) -> dict[str, Any]:
    try:
        line = procfs.mount_of(pid, _SHM)
        if line is None:
            return {}
        facts: dict[str, Any] = {"shm_mount": redact.text(line)}
        sizes = os.statvfs(procfs.PROC / str(pid) / "root/dev/shm")
    except PermissionError:
        return {}
    return {**facts, "shm_bytes": {"size": sizes.f_blocks * sizes.f_frsize, "free": sizes.f_bavail * sizes.f_frsize}}
