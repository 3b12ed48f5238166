"""Starts made from snapshots of real engines (tests/data/real): the same processes, buffers and logs on a machine of two nodes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearsocket.model import read
from nearsocket.model.host import Host
from nearsocket.model.plan.values import Gate
from nearsocket.model.prove import Around, prove
from nearsocket.model.settings import OnChange, OnFar, Relief, Runtime, Verify
from nearsocket.model.snapshot import from_json
from nearsocket.model.start import Start
from nearsocket.model.verdict import Trigger, Verdict

REAL = Path(__file__).resolve().parents[2] / "data" / "real"
GPUS = ("0000:00:06.0", "0000:00:07.0")
FOLDER = "20260131T110000Z-77"
START = Start(
    replica="a",
    runtime=Runtime.DOCKER,
    container="nearsocket-sglang-a",
    unit="nearsocket-sglang-a.service",
    image="i@sha256:0",
    gpus=GPUS,
    gate=Gate.CDI_UUID,
    on_change=OnChange.UNBOUND,
    near="0",
    relief=Relief.AUTO,
    relief_timeout_s=30,
    model="/srv/m",
    shm_point=None,
    shm_policy=None,
    bound={},
    unbound={},
    secrets={},
    health="http://127.0.0.1:30000/health",
    start_s=60,
    slice="nearsocket-a.slice",
    verify=Verify(OnFar.WARN),
)

Value = dict[str, Any]


def real(name: str) -> Value:
    """The snapshot as JSON's own values, free to be changed."""
    value: Value = copy.deepcopy(json.loads((REAL / f"{name}.snapshot.json").read_text(encoding="utf-8")))
    return value


def data(value: Value, source: str) -> Any:
    """That source's data."""
    return value["sources"][source]["data"]


def two_nodes(value: Value, gpu_node: int = 0, mems: str = "0-1", policy: str = "default") -> Value:
    """The machine with a second socket, its GPUs on one of the two; the ranks' live binding as given, their CPUs the GPUs' own."""
    nodes = data(value, "nodes")
    nodes.update({"online": "0-1", "possible": "0-1", "has_cpu": "0-1", "has_memory": "0-1"})
    cpus = data(value, "cpus")
    first = nodes["node0/cpulist"]
    last = int(first.replace("-", ",").split(",")[-1])
    second = f"{last + 1}-{2 * last + 1}"
    for name in [name for name in nodes if name.startswith("node0/")]:
        nodes[name.replace("node0/", "node1/")] = nodes[name].replace("Node 0", "Node 1")
    nodes["node1/cpulist"], nodes["node0/distance"], nodes["node1/distance"] = second, "10 21", "21 10"
    for number in range(last + 1):
        for name in [name for name in cpus if name.startswith(f"cpu{number}/")]:
            other = name.replace(f"cpu{number}/", f"cpu{number + last + 1}/")
            cpus[other] = "1" if other.endswith("physical_package_id") else cpus[name]
    cpus["online"] = f"0-{2 * last + 1}"
    own = (first, second)[gpu_node]
    for gpu in data(value, "nvml")["gpus"]:
        gpu.update({"numa_node": gpu_node, "cpus": own, "memory_nodes": str(gpu_node)})
    for at in GPUS:
        data(value, "pci")[at].update({"numa_node": str(gpu_node), "local_cpulist": own})
    for name in ("numactl", "nvidia.topo", "nvidia.smi"):
        value["sources"][name] = {"status": "absent", "text": None, "data": None, "reason": "not asked", "took_s": 0}
    for process in data(value, "processes"):
        lines = [line for line in process["status"].splitlines() if not line.startswith(("Cpus_allowed_list", "Mems_allowed_list"))]
        process["status"] = "\n".join([*lines, f"Cpus_allowed_list:\t{own}", f"Mems_allowed_list:\t{mems}"])
        process["cpus"] = own
        process["policy_line"] = process["policy_line"].replace(" default ", f" {policy} ")
    return value


def host(value: Value) -> Host:
    """The host that it tells of."""
    return read.host(from_json(json.dumps(value)))


def verdict(value: Value, start: Start = START, **around: Any) -> Verdict:
    """The verdict on a start that looks so."""
    made = Around(start=FOLDER, now="2026-01-31T12:00:00Z", trigger=Trigger.START, running=len(data(value, "processes") or ()))
    return prove(host(value), start, Around(**{**made.__dict__, **around}))


def rings(value: Value, change: Callable[[Value], None]) -> Value:
    """The same with each ring buffer's entry changed."""
    for process in data(value, "processes"):
        for buffer in process["buffers"]:
            if buffer["length"] == 2354 * 4096:
                change(buffer)
    return value
