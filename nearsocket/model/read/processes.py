"""Processes that use a GPU, an nccl- file or belong to an engine: what the kernel, NVML and their titles say of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from nearsocket.model.containment import same_container
from nearsocket.model.host import Container, Gpu, Mount, Process
from nearsocket.model.parsers import cgroup, mountinfo, pci, policy, procstatus, take
from nearsocket.model.parsers.nccl_ranks import own_lines
from nearsocket.model.parsers.procstatus import ProcStatus
from nearsocket.model.read import buffers, family, titles
from nearsocket.model.read.buffers import Mapped
from nearsocket.model.read.notes import Notes, quoted
from nearsocket.model.snapshot import Snapshot

GpuBytes = Mapping[str, Optional[int]]


@dataclasses.dataclass(frozen=True)
class Around:
    """What a process is seen against: containers, device minor to GPU address, NVML's GPU memory by pid, logs by pid."""

    containers: Sequence[Container]
    minors: Mapping[int, str]
    gpu_bytes: Mapping[int, GpuBytes]
    logs: Mapping[int, str]


@dataclasses.dataclass(frozen=True)
class Seen:
    """A process and its mappings, which are merged anew over all processes."""

    process: Process
    mappings: tuple[Mapped, ...]


def processes(
    snapshot: Snapshot, gpus: Sequence[Gpu], containers: Sequence[Container], minors: Mapping[int, str], notes: Notes
) -> tuple[Seen, ...]:
    """All processes of the snapshot by number; those that vanished while they were read are noted and left out."""
    entries: dict[int, Mapping[str, Any]] = {}
    for entry in take.maps(snapshot.data("processes")):
        pid = take.number(entry.get("pid"), 1)
        if pid is None:
            notes.add("processes", f"an entry without a process number ({quoted(entry.get('pid'))}), left out")
        elif take.flag(entry.get("vanished")):
            notes.add("processes", f"process {pid} ended while it was read, left out")
        else:
            entries.setdefault(pid, entry)
    around = Around(containers, minors, _nvml_bytes(snapshot, entries, {gpu.pci for gpu in gpus}), _logs(snapshot, entries))
    found = [_seen(pid, entry, around, notes) for pid, entry in sorted(entries.items())]
    related = family.related([seen.process for seen in found], containers)
    return tuple(Seen(process, seen.mappings) for process, seen in zip(related, found))


def _nvml_bytes(snapshot: Snapshot, entries: Mapping[int, Mapping[str, Any]], known: set[str]) -> Mapping[int, GpuBytes]:
    """Process number to the GPUs whose memory it holds, by the process's own entry and by NVML's list."""
    found: dict[int, dict[str, Optional[int]]] = {}
    for pid, entry in entries.items():
        for key, size in take.mapping(entry.get("gpu_bytes")).items():
            at = pci.address(key)
            if at is not None:
                found.setdefault(pid, {})[at] = take.number(size)
    for gpu in take.maps(take.mapping(snapshot.data("nvml")).get("gpus")):
        at = pci.address(take.word(gpu.get("pci")))
        for user in take.maps(gpu.get("processes")):
            holder = take.number(user.get("pid"), 1)
            if at is not None and at in known and holder is not None and holder in entries:
                found.setdefault(holder, {}).setdefault(at, take.number(user.get("used_bytes")))
    return found


def _logs(snapshot: Snapshot, entries: Mapping[int, Mapping[str, Any]]) -> Mapping[int, str]:
    """Process number to its NCCL log. A log whose number is a container's belongs to the one process with that NSpid."""
    inner: dict[int, list[int]] = {}
    for pid, entry in entries.items():
        for number in take.numbers(entry.get("nspid"), 1)[1:]:
            inner.setdefault(number, []).append(pid)
    found: dict[int, list[str]] = {}
    for log in take.maps(snapshot.data("nccl.logs")):
        named, text = take.number(log.get("pid"), 1), take.text(log.get("text"))
        if named is None or text is None:
            continue
        owners = [named] if named in entries else inner.get(named, [])
        if len(owners) == 1:
            found.setdefault(owners[0], []).append(text)
    return {pid: "\n".join(texts) for pid, texts in found.items()}


def _seen(pid: int, entry: Mapping[str, Any], around: Around, notes: Notes) -> Seen:
    status = procstatus.parse(take.word(entry.get("status")))
    group = cgroup.parse(take.word(entry.get("cgroup")))
    command = tuple(word for word in take.texts(entry.get("command")) if word)
    comm = take.word(entry.get("comm")) or status.name or ""
    title = " ".join(command) or comm
    mappings, unread = buffers.mapped(pid, group.container or "", entry.get("buffers"))
    if unread:
        notes.add("processes", f"process {pid}: {unread} entries of its nccl- files could not be read")
    gpu_bytes = around.gpu_bytes.get(pid, {})
    log = around.logs.get(pid)
    cpus = take.cpus(entry.get("cpus"))
    shm = take.mapping(entry.get("shm_bytes"))
    environ = entry.get("environ")
    ppid, uid = take.number(entry.get("ppid")), take.number(entry.get("uid"))
    nspid = take.numbers(entry.get("nspid"), 1) or status.nspid
    process = Process(
        pid=pid,
        ppid=ppid if ppid is not None else status.ppid or 0,
        start_ticks=take.number(entry.get("start_ticks")) or 0,
        uid=uid if uid is not None else _uid(pid, status, notes),
        comm=comm,
        command=command,
        title=title,
        cgroup=group.path,
        container=_container_id(group.container, around.containers),
        unit=group.unit,
        cpus=cpus if cpus is not None else status.cpus or frozenset(),
        mems_allowed=_mems(pid, status, notes),
        policy=policy.policy(take.word(entry.get("policy_line"))),
        sys_nice=status.sys_nice,
        environ=take.text_map(environ) if isinstance(environ, dict) else None,
        environ_reason=take.text(entry.get("environ_reason")),
        gpus=_gpus(entry, gpu_bytes, bool(around.gpu_bytes), around.minors),
        gpu_bytes=gpu_bytes,
        engine=titles.engine(command),
        rank=titles.logged_rank(own_lines(log, frozenset({pid, *nspid}))) if log else None,
        shm_mount=_shm(entry),
        shm_size_bytes=take.number(shm.get("size")),
        shm_free_bytes=take.number(shm.get("free")),
        buffers=buffers.merge(mappings),
        buffers_by=take.text(entry.get("buffers_by")),
        buffers_reason=take.text(entry.get("buffers_reason")) or _unread(entry),
        nccl_log=log,
        nspid=nspid,
    )
    return Seen(process, mappings)


def _unread(entry: Mapping[str, Any]) -> Optional[str]:
    """Why an empty list of nccl- files proves nothing: the reading of this process stopped before it got there."""
    reason = take.text(entry.get("unread"))
    return f"its reading stopped early: {reason}" if reason and not entry.get("buffers") else None


def _uid(pid: int, status: ProcStatus, notes: Notes) -> int:
    """The effective user; -1, which no user has, where nothing says."""
    if status.uid is None:
        notes.add("processes", f"process {pid}: its user could not be read")
    return -1 if status.uid is None else status.uid


def _mems(pid: int, status: ProcStatus, notes: Notes) -> frozenset[int]:
    if status.mems is None:
        notes.add("processes", f"process {pid}: Mems_allowed_list could not be read")
    return status.mems or frozenset()


def _shm(entry: Mapping[str, Any]) -> Optional[Mount]:
    return mountinfo.mount(take.word(entry.get("shm_mount")))


def _gpus(entry: Mapping[str, Any], held: GpuBytes, nvml_knows: bool, minors: Mapping[int, str]) -> tuple[str, ...]:
    """The GPUs that the process computes on. NVML's word first: CUDA opens the device of every GPU it can see.

    Open devices count only where NVML names none of the processes (a PID namespace hides them, or NVML was not read).
    """
    if held or nvml_knows:
        return tuple(sorted(held))
    prefix = "/dev/nvidia"
    opened = (take.number(path[len(prefix) :]) for path in take.texts(entry.get("devices")) if path.startswith(prefix))
    return tuple(sorted({minors[minor] for minor in opened if minor is not None and minor in minors}))


def _container_id(id: Optional[str], containers: Sequence[Container]) -> Optional[str]:
    """The id as the runtime gives it (it may be the short form); the control group's where no runtime knows it."""
    if id is None:
        return None
    return next((box.id for box in containers if same_container(box.id, id)), id)
