"""Who holds a GPU that a replica wants: a process on it, or a running container that was given it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.containment import same_container, unit_of
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest, ReplicaEntry
from nearsocket.model.host import Container, Gpu, Host, Process
from nearsocket.model.read import titles
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import entries, refused, why

_IDS = re.compile(r"\bids=(\S*)")
_NODE = re.compile(r"/dev/nvidia(\d+)\Z")
#: Words by which every GPU is given. A monitor has them too, so they alone hold nothing.
_EVERY = frozenset({"all"})


@dataclass(frozen=True)
class Holder:
    """Who holds the GPU at that address: a process, and the container that it is in; or a container that was given it."""

    gpu: str
    process: Optional[Process]
    box: Optional[Container]


def refuse_held(host: Host, wanted: Sequence[ReplicaEntry], here: Optional[Manifest], idle: Collection[str] = frozenset()) -> None:
    """Raises NearsocketError where a GPU that is new to this host's generation is somebody else's, with the holder's name.

    `here`: the generation in force, None where there is none. A GPU that one of its replicas has already is ours, but for those
    in `idle`, which do not run.
    """
    had = {gpu for replica in here.replicas if replica.name not in idle for gpu in replica.gpus} if here else set()
    new = [gpu for replica in wanted for gpu in replica.gpus if gpu not in had]
    if new and host.gpus and "processes" in host.sources and refused(host, "processes"):
        raise NearsocketError(f"expected to see who holds GPU {new[0]}, found: {why(host, 'processes')}", "run it again, as root")
    for replica in wanted:
        for gpu in replica.gpus:
            holder = holder_of(host, gpu, here) if gpu not in had else None
            if holder:
                raise NearsocketError(
                    f"{replica.name}: expected GPU {gpu} to be free, found {holder} on it",
                    "stop it, give the replica other GPUs, or say `adopt` on the replica to take it over: docs/beside.md",
                )


def holder_of(host: Host, pci: str, here: Optional[Manifest] = None) -> Optional[str]:
    """Who holds the GPU at that address, replicas of `here` aside, in words; None where nobody does.

    A container that was given this GPU by name holds it before its first process does: an engine that reads its weights has
    no process on the GPU for minutes. One that was given every GPU holds them only if it runs an engine.
    """
    first = next(holding(host, (pci,), here), None)
    return named(host, first) if first else None


def holding(host: Host, addresses: Collection[str], here: Optional[Manifest] = None) -> Iterator[Holder]:
    """Everybody who holds one of the GPUs at these addresses, as `holder_of` counts: processes first, then containers."""
    for process in host.processes:
        held = sorted(set(process.gpus) & set(addresses))
        if held and not ours(host, process, here):
            yield Holder(held[0], process, box_of(host, process))
    for box in host.containers:
        given_to = [gpu.pci for gpu in host.gpus if gpu.pci in addresses and _given(host, box, gpu)]
        if given_to and not managed(box.name, here):
            yield Holder(given_to[0], None, box)


def named(host: Host, holder: Holder) -> str:
    """The holder in words: a process with its container or unit, or a container with its unit."""
    if holder.process is not None:
        return _said(host, holder.process)
    return _container(host, holder.box) if holder.box else "nobody"


def box_of(host: Host, process: Process) -> Optional[Container]:
    """The container that the process is in, as its runtime describes it."""
    return next((box for box in host.containers if same_container(box.id, process.container)), None)


def managed(container: str, here: Optional[Manifest]) -> bool:
    """Whether that container is a replica's of the generation."""
    return here is not None and any(container == replica.container for replica in here.replicas)


def ours(host: Host, process: Process, here: Optional[Manifest]) -> bool:
    """Whether a replica of the generation runs this process."""
    if here is None:
        return False
    box, parts = box_of(host, process), (process.cgroup or "").split("/")
    units = {name for replica in here.replicas for name in (replica.unit, replica.slice)}
    return (box is not None and managed(box.name, here)) or process.unit in units or bool(units.intersection(parts))


def _said(host: Host, process: Process) -> str:
    box = box_of(host, process)
    inside = f" of {_container(host, box)}" if box else f" of {one_line(process.unit, 60)}" if process.unit else ""
    return f"process {process.pid} ({one_line(process.title, 60)}){inside}"


def _container(host: Host, box: Container) -> str:
    unit = unit_of(box, host.units)
    return f"container {one_line(box.name or box.id[:12], 60)}" + (f" of {one_line(unit.id, 60)}" if unit else "")


def _given(host: Host, box: Container, gpu: Gpu) -> bool:
    words = given(host, box)
    names = {word for word in (gpu.uuid, str(gpu.index) if gpu.index is not None else None) if word}
    if names & words:
        return True
    return bool(_EVERY & words) and titles.engine(box.command) is not None


def given(host: Host, box: Container) -> set[str]:
    """The GPUs that a container was given, as NVML indices, UUIDs or `all`, however it was asked for."""
    words: set[str] = set()
    for request in box.gpu_requests:
        found = _IDS.search(request)
        named = {word for word in (found[1].split(",") if found else []) if word}
        words |= {_bare(word) for word in named} or {"all"}
    words |= {_bare(name) for name in box.cdi_devices}
    minors = {match[1] for match in map(_NODE.match, box.devices) if match}
    # A minor number is NVML's index wherever no card was taken out since the boot; where it is not, the processes tell.
    words |= minors
    entry = next((e for e in entries(host, "containers") if e.get("id") == box.id), {})
    asked = box.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if "nvidia" in str(entry.get("runtime_name")) and asked not in ("", "void", "none"):
        words |= set(asked.split(","))
    return words


def _bare(name: str) -> str:
    return name.rpartition("=")[2]
