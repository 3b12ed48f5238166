"""Who is judged: replicas and stray processes, their ranks, their container, and how they are named in a finding."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.containment import same_container, unit_of
from nearsocket.model.finding import Evidence, Finding, not_applicable, unknown
from nearsocket.model.host import Container, Engine, Host, Process, Unit
from nearsocket.model.near import misnamed
from nearsocket.model.parsers import take
from nearsocket.model.parsers.pci import address as pci_address
from nearsocket.model.read.grouping import SERVANTS
from nearsocket.model.text import brief

#: What to run where this user could not look into the processes.
AS_ROOT = "# audit as root: nearsocket audit root@HOST, or with --sudo as a user who may; here: sudo .venv/bin/nearsocket audit"
#: An idle GPU has some memory in use (an H200: 0.6 GiB); more than this is somebody's.
IDLE_BYTES = 2 << 30
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")


def quoted(text: str) -> str:
    """The text as one word of a shell command, on one line."""
    return shlex.quote(brief(text, 200))


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
    """Whether the process works on a GPU: GPU memory by NVML, or an open device where it is an engine's or NVML is silent.

    A process that holds GPU memory for others (the MPS daemon) or draws a screen does not.
    """
    if process.comm in SERVANTS:
        return False
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
            subject = f"replica {brief(replica.name)}"
            made.append(_group(host, subject, replica.engine, members, replica.container, replica.unit, replica.ranks))
    for process in host.processes:
        if process.pid not in claimed and (process.buffers or holds_gpu(host, process)):
            subject = f"process {brief(process.title or process.comm, 60)} ({process.pid})"
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
    ids = {container, *(process.container for process in members)}
    found = next((c for c in host.containers if any(same_container(c.id, id) for id in ids)), None)
    units = {unit, *(process.unit for process in members)} - {None}
    owner = next((u for u in host.units if u.id in units), None) or unit_of(found, host.units)
    return Group(subject, engine, members, _ranks(host, members, ranks), found, owner)


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
        return f"the processes could not be read ({source.status.value}: {brief(source.reason or 'no reason given')})"
    if source.reason and (host.uid != 0 or host.gpus):
        return f"the processes were read in part ({brief(source.reason)})"
    for process in host.processes:
        # Its buffers may be there, and what it runs may be unknown too.
        if process.buffers_reason and not process.buffers and not holds_gpu(host, process) and process.comm not in SERVANTS:
            return f"the nccl- files of {who(process)} could not be read ({brief(process.buffers_reason)})"
    if host.uid != 0:
        return f"read as user id {host.uid if host.uid is not None else 'unknown'}, which cannot look into other users' processes"
    return None


def nvml_lists_nothing(host: Host) -> bool:
    """Whether NVML told every GPU's compute processes, and there is none: it sees those of every user."""
    data = host.source("nvml").data if host.source("nvml").ok else None
    told = data.get("gpus") if isinstance(data, dict) else None
    if not isinstance(told, list) or len(told) < len(host.gpus) or not told:
        return False
    return all(isinstance(gpu, dict) and gpu.get("processes") == [] for gpu in told)


def unlisted_memory(host: Host, listed: bool = False) -> Optional[str]:
    """A GPU with memory in use that no process of the snapshot holds, in words; None where there is none.

    In a container or a PID namespace NVML lists nobody, so its empty list proves nothing there. `listed`: only GPUs whose
    list NVML gave.
    """
    told = host.source("nvml").data if host.source("nvml").ok else None
    gpus = take.maps(told.get("gpus")) if isinstance(told, dict) else ()
    empty = {pci_address(take.word(gpu.get("pci"))) for gpu in gpus if gpu.get("processes") == []}
    held = {pci for process in host.processes for pci in (*process.gpus, *process.gpu_bytes)}
    for gpu in host.gpus:
        used = gpu.memory_used_bytes or 0
        if used > IDLE_BYTES and gpu.pci not in held and (not listed or gpu.pci in empty):
            return f"{used / (1 << 30):.1f} GiB of GPU {brief(gpu.pci, 20)} are in use by processes that do not show here"
    return None


def nothing_runs(host: Host) -> Optional[Finding]:
    """The finding of a check about running engines where none is seen, or `--near` cannot be meant; None where something runs.

    Not-applicable needs the word of a complete process list, or of a PCI bus without a GPU, and GPUs whose memory is unused.
    """
    wrong = misnamed(host)
    if wrong is not None:
        return unknown(host.name, wrong, (Evidence("--near", wrong),), "numactl -H  # then name the nodes of the GPUs' socket")
    if groups(host):
        return None
    pci = host.source("pci")
    if not host.gpus and host.near is None and pci.ok:
        return not_applicable(
            host.name, "no GPU on this host and no process with an nccl- file", (Evidence("pci", "no GPU found"),)
        )
    unlisted = unlisted_memory(host)
    if unlisted is not None:
        return unknown(host.name, unlisted, (Evidence("nvml memory", unlisted),), f"{AS_ROOT}; on the host, outside containers")
    blind = blind_spot(host)
    if blind is not None:
        if nvml_lists_nothing(host):
            seen = (Evidence("nvml", "no compute process on any GPU"), Evidence("processes", blind))
            return not_applicable(host.name, "no process holds a GPU", seen)
        return unknown(host.name, blind, (Evidence("processes", blind),), AS_ROOT)
    looked = f"{len(host.processes)} processes looked at; none holds a GPU or maps an nccl- file"
    return not_applicable(host.name, "no process holds a GPU or an nccl- file", (Evidence("processes", looked),))


def hidden_processes(host: Host) -> tuple[Finding, ...]:
    """An unknown on the host where some process that holds a GPU may not be in the snapshot; empty where none can hide.

    NVML lists every user's GPU processes and each of them is in the snapshot, readable or not: none hides where NVML was read.
    """
    unlisted = unlisted_memory(host, listed=True)
    if unlisted is not None:
        return (unknown(host.name, unlisted, (Evidence("nvml memory", unlisted),), f"{AS_ROOT}; on the host, outside containers"),)
    blind = blind_spot(host)
    if blind is None or (host.source("processes").ok and host.source("nvml").ok):
        return ()
    return (unknown(host.name, blind, (Evidence("processes", blind),), AS_ROOT),)
