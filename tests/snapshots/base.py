"""One machine and one engine as a whole snapshot, which fixtures change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from tests.snapshots import engine, machine, system
from tests.snapshots.engine import Task
from tests.snapshots.machine import GpuSpec, NodeSpec

TWO_NODES = (NodeSpec(0, "0-7,16-23", "10 21"), NodeSpec(1, "8-15,24-31", "21 10"))
TWO_PACKAGES = {0: "0-7,16-23", 1: "8-15,24-31"}
ON_1 = "8-15,24-31"
TWO_GPUS = (GpuSpec("0000:c1:00.0", 1, ON_1, 1, ON_1), GpuSpec("0000:e1:00.0", 1, ON_1, 1, ON_1))
ADDRESSES = tuple(gpu.pci for gpu in TWO_GPUS)


def source(value: Any) -> Source:
    """A text as text, anything else as data, a Source as it is."""
    if isinstance(value, Source):
        return value
    return Source(SourceStatus.OK, text=value) if isinstance(value, str) else Source(SourceStatus.OK, data=value)


def absent(reason: str) -> Source:
    """A source that this machine does not have."""
    return Source(SourceStatus.ABSENT, reason=reason)


def host(
    nodes: Sequence[NodeSpec] = TWO_NODES,
    packages: Mapping[int, str] = TWO_PACKAGES,
    gpus: Sequence[GpuSpec] = TWO_GPUS,
    tasks: Sequence[Task] = (),
    containers: Sequence[Mapping[str, Any]] = (),
    units: Sequence[Mapping[str, Any]] = (),
    word: str = "NODE",
    sources: Mapping[str, Any] | None = None,
) -> Snapshot:
    """A snapshot of this machine with these tasks; `sources` replaces sources by name."""
    values: dict[str, Any] = {
        **system.kernel(),
        **system.driver(gpus),
        **system.services(),
        "nodes": machine.node_files(nodes),
        "cpus": machine.cpu_files(packages),
        "meminfo": machine.meminfo(nodes),
        "numactl": machine.numactl(nodes),
        "pci": machine.pci(gpus, nodes[0].id, nodes[0].cpus),
        "nvml": machine.nvml(gpus, engine.used(tasks), word),
        "nvidia.topo": machine.topo(gpus, word),
        "zfs.arcstats": absent("no such file"),
        "processes": [task.data() for task in tasks],
        "nccl.logs": [],
        "containers": list(containers),
        "units": list(units),
    }
    values.update(sources or {})
    return Snapshot(
        host="gpu1",
        taken_at="2026-01-31T12:00:00Z",
        boot_id="00000000-0000-0000-0000-000000000000",
        privilege={"uid": 0, "user": "root", "cap_eff": "000001ffffffffff"},
        program={"version": "0.1.0", "python": "3.11.2", "took_s": 0.8},
        sources={name: source(value) for name, value in values.items()},
    )
