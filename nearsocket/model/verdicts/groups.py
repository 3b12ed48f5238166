"""Who is judged: replicas and stray processes, their ranks, their container, and how they are named in a finding."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.finding import Evidence, Finding, not_applicable, unknown
from nearsocket.model.host import Container, Engine, Host, Process, Unit

#: What to run where this user could not look into the processes.
AS_ROOT = "sudo nearsocket audit @local  # from elsewhere: nearsocket audit root@HOST"
_RUNS_CONTAINER = re.compile(r"\b(?:docker|podman)\b.*\b(?:run|start)\b", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")


def one_line(text: str, limit: int = 120) -> str:
    """The text on one line: what is not printable is escaped, what is longer than `limit` is cut with an ellipsis."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def quoted(text: str) -> str:
    """The text as one word of a shell command, on one line."""
    return shlex.quote(one_line(text, 200))


@dataclass(frozen=True)
class Group:
    """One replica, or one process that belongs to none. `ranks` are the processes that exchange data between GPUs."""

    subject: str
    engine: Optional[Engine]
    processes: tuple[Process, ...]
    ranks: tuple[Process, ...]
    container: Optional[Container]
    unit: Optional[Unit]

    @property
    def rank_gpus(self) -> tuple[str, ...]:
        """The PCI addresses of the ranks' GPUs, each once."""
        return tuple(dict.fromkeys(pci for process in self.ranks for pci in process.gpus))

    @property
    def container_word(self) -> str:
        """The container for a shell command: its name where that is a plain word, else its id."""
        if self.container is None:
            return "CONTAINER"
        name = self.container.name
        return name if _PLAIN_NAME.match(name) else quoted(self.container.id)

    @property
    def runtime(self) -> str:
        """The command of the container's runtime: docker or podman."""
        return "podman" if self.container is not None and self.container.runtime == "podman" else "docker"


def holds_gpu(host: Host, process: Process) -> bool:
    """Whether the process works on a GPU: GPU memory by NVML, or an open device where it is an engine's or NVML is silent."""
    if process.gpu_bytes:
        return True
    return bool(process.gpus) and (process.engine is not None or process.rank is not None or not host.source("nvml").ok)


def groups(host: Host) -> tuple[Group, ...]:
    """The replicas that have a process with a GPU or an nccl- file, then such processes that belong to no replica."""
    made = []
    claimed: set[int] = set()
    for replica in host.replicas:
        members = tuple(process for process in map(host.process, replica.pids) if process is not None)
        claimed.update(process.pid for process in members)
        if any(process.buffers or holds_gpu(host, process) for process in members) or (members and replica.engine is not None):
            subject = f"replica {one_line(replica.name)}"
            made.append(_group(host, subject, replica.engine, members, replica.container, replica.unit, replica.ranks))
    for process in host.processes:
        if process.pid not in claimed and (process.buffers or holds_gpu(host, process)):
            subject = f"process {one_line(process.title or process.comm, 60)} ({process.pid})"
            made.append(_group(host, subject, process.engine, (process,), process.container, process.unit))
    return tuple(made)


def _group(
    host: Host,
    subject: str,
    engine: Optional[Engine],
    members: tuple[Process, ...],
    container: Optional[str],
    unit: Optional[str],
    ranks: tuple[int, ...] = (),
) -> Group:
    ids = {container, *(process.container for process in members)} - {None}
    found = next((c for c in host.containers if any(i and (c.id.startswith(i) or i.startswith(c.id)) for i in ids)), None)
    units = {unit, *(process.unit for process in members)} - {None}
    owner = next((u for u in host.units if u.id in units), None) or _caller(host, found)
    return Group(subject, engine, members, _ranks(host, members, ranks), found, owner)


def _caller(host: Host, container: Optional[Container]) -> Optional[Unit]:
    """The active unit whose command runs this container: by the container's name, else by an image that one unit alone names."""
    if container is None:
        return None
    running = [unit for unit in host.units if unit.active == "active" and _RUNS_CONTAINER.search(unit.exec_start)]
    words = {unit.id: set(re.split(r"[\s=;]+", unit.exec_start)) for unit in running}
    by_name = [unit for unit in running if container.name in words[unit.id]]
    by_image = [unit for unit in running if container.image in words[unit.id]]
    return by_name[0] if by_name else by_image[0] if len(by_image) == 1 else None


def _ranks(host: Host, members: tuple[Process, ...], named: tuple[int, ...]) -> tuple[Process, ...]:
    """Launchers and tokenizers hold devices too: where the replica or titles name the ranks, only those count."""
    chosen = tuple(process for process in members if process.pid in named or process.rank is not None)
    return chosen or tuple(process for process in members if process.buffers or holds_gpu(host, process))


def who(process: Process) -> str:
    """The process in a summary: `rank 0 (pid 4242)` or `pid 4242`."""
    return f"rank {process.rank} (pid {process.pid})" if process.rank is not None else f"pid {process.pid}"


def blind_spot(host: Host) -> Optional[str]:
    """Why processes that matter may exist that this snapshot does not show; None where it shows them all.

    On a host without a GPU a few processes that even root may not look into are no gap: they can hold no GPU.
    """
    source = host.source("processes")
    if not source.ok:
        return f"the processes could not be read ({source.status.value}: {one_line(source.reason or 'no reason given')})"
    if source.reason and (host.uid != 0 or host.gpus):
        return f"the processes were read in part ({one_line(source.reason)})"
    if host.uid != 0:
        return f"read as user id {host.uid if host.uid is not None else 'unknown'}, which cannot look into other users' processes"
    return None


def nothing_runs(host: Host) -> Optional[Finding]:
    """The finding of a check about running engines where none is seen; None where something runs.

    Not-applicable needs the word of a complete process list, or of a PCI bus without a GPU.
    """
    if groups(host):
        return None
    pci = host.source("pci")
    if not host.gpus and host.near is None and pci.ok:
        return not_applicable(
            host.name, "no GPU on this host and no process with an nccl- file", (Evidence("pci", "no GPU found"),)
        )
    blind = blind_spot(host)
    if blind is not None:
        return unknown(host.name, blind, (Evidence("processes", blind),), AS_ROOT)
    seen = f"{len(host.processes)} processes looked at; none holds a GPU or maps an nccl- file"
    return not_applicable(host.name, "no process holds a GPU or an nccl- file", (Evidence("processes", seen),))


def hidden_processes(host: Host) -> tuple[Finding, ...]:
    """An unknown on the host where some process that holds a GPU may not be in the snapshot; empty where none can hide.

    NVML lists every user's GPU processes and each of them is in the snapshot, readable or not: none hides where NVML was read.
    """
    blind = blind_spot(host)
    if blind is None or (host.source("processes").ok and host.source("nvml").ok):
        return ()
    return (unknown(host.name, blind, (Evidence("processes", blind),), AS_ROOT),)
