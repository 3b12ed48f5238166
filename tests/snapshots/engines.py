"""Fixtures of engines: how replicas can run on a two-socket machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nearsocket.model.snapshot import Snapshot
from tests.snapshots import engine, machine
from tests.snapshots.base import ADDRESSES, ON_1, TWO_NODES, host
from tests.snapshots.engine import Task
from tests.snapshots.machine import GpuSpec

ON_0 = "0-7,16-23"
FOUR = (
    GpuSpec("0000:21:00.0", 0, ON_0, 0, ON_0),
    GpuSpec("0000:41:00.0", 0, ON_0, 0, ON_0),
    GpuSpec("0000:c1:00.0", 1, ON_1, 1, ON_1),
    GpuSpec("0000:e1:00.0", 1, ON_1, 1, ON_1),
)
OTHER = "fedcba9876543210" * 4


def eight_gpus() -> Snapshot:
    """TP8 over two sockets, four GPUs on each; each receive buffer lies on the socket of the rank that owns it."""
    gpus = tuple(GpuSpec(f"0000:{bus}:00.0", 0, ON_0, 0, ON_0) for bus in ("11", "21", "31", "41"))
    gpus += tuple(GpuSpec(f"0000:{bus}:00.0", 1, ON_1, 1, ON_1) for bus in ("91", "a1", "b1", "c1"))
    devices = [f"/dev/nvidia{minor}" for minor in range(8)]
    files = [engine.mapping(f"hop{r}", 300 + r, {r // 4: engine.pages(engine.RING_BYTES)}) for r in range(8)]
    tasks = [
        Task(6100 + r, (f"sglang::scheduler_TP{r}",), 6000, {gpus[r].pci: 90 << 30}, devices, [files[r], files[(r + 1) % 8]])
        for r in range(8)
    ]
    server = Task(6000, ("python3", "-m", "sglang.launch_server", "--tp", "8", "--port", "30000"), 5990, devices=devices)
    return host(gpus=gpus, tasks=[server, *tasks], containers=[engine.container(pid=6000)], word="SYS")


def two_replicas() -> Snapshot:
    """A container of two GPUs on each socket; equal file names in both, each in its own /dev/shm."""
    second = [mapping_in("0:61", task) for task in engine.sglang([gpu.pci for gpu in FOUR[2:]], 1, 7242, mems="1")]
    second = [changed(task, cgroup=f"0::/system.slice/docker-{OTHER}.scope\n") for task in second]
    tasks = [*engine.sglang([gpu.pci for gpu in FOUR[:2]], 0, mems="0"), *second]
    boxes = [engine.container(name="left", cpuset_mems="0"), engine.container(name="right", id=OTHER, pid=7000, cpuset_mems="1")]
    return host(gpus=FOUR, tasks=tasks, containers=boxes)


def two_servers_in_one_container() -> Snapshot:
    """Two servers side by side in one container, told apart by their files and ports."""
    second = []
    for task in engine.sglang([gpu.pci for gpu in FOUR[2:]], 1, 7242):
        command = tuple("31000" if word == "30000" else word for word in task.command)
        buffers = [{**entry, "inode": int(entry["inode"]) + 1000} for entry in task.buffers]
        second.append(changed(task, command=command, buffers=buffers))
    tasks = [*engine.sglang([gpu.pci for gpu in FOUR[:2]], 0), *second]
    return host(gpus=FOUR, tasks=tasks, containers=[engine.container()])


def vllm_unit() -> Snapshot:
    """vLLM in a unit with NUMAPolicy=bind and a bound tmpfs at /dev/shm, no container."""
    mount = "77 31 0:56 / /dev/shm rw,nosuid,nodev shared:9 - tmpfs near rw,size=8388608k,mpol=bind:1,inode64"
    place: dict[str, Any] = {
        "cgroup": "0::/system.slice/nearsocket-vllm-main.service\n",
        "shm_mount": mount,
        "policy": "bind:1",
        "cpus": ON_1,
    }
    workers = [
        Task(8200 + r, (f"VLLM::Worker_TP{r}",), 8100, {at: 80 << 30}, buffers=[*engine.ring(1), *engine.pool(r, 1)], **place)
        for r, at in enumerate(ADDRESSES)
    ]
    server = ("/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve", "/models/m", "--port=8000")
    tasks = [Task(8000, server, 1, **place), Task(8100, ("VLLM::EngineCore",), 8000, **place), *workers]
    unit = engine.unit(
        id="nearsocket-vllm-main.service",
        main_pid=8000,
        numa_policy="bind",
        numa_mask="1",
        exec_start="/opt/vllm/bin/vllm serve /models/m --port=8000",
        cgroup="/system.slice/nearsocket-vllm-main.service",
    )
    return host(tasks=tasks, units=[unit])


def nvml_blind() -> Snapshot:
    """NVML lists no process (another PID namespace): the open devices and /proc/driver/nvidia tell the GPUs."""
    tasks = [changed(task, gpus={}) for task in engine.sglang(ADDRESSES, 1)]
    gpus = tuple(GpuSpec(at, 1, ON_1, 1, ON_1) for at in ADDRESSES)
    snapshot = host(TWO_NODES, gpus=gpus, tasks=tasks, containers=[engine.container()])
    assert not engine.used(tasks) and machine.nvml(gpus)["gpus"][0]["processes"] == []
    return snapshot


def h200_pair() -> Snapshot:
    """What two ranks of NCCL 2.28.9 with P2P and cuMem off showed in a one-node virtual machine with two H200.

    The counts, mappings, addresses, log lines and the coloured table's header are as read; CUDA opened both devices in each.
    """
    gpus = tuple(
        GpuSpec(at, -1, "0-31", 0, "0-31", name="NVIDIA H200", device="0x2335", extra={"path": [], "root": "pci0000:00"})
        for at in ("0000:00:06.0", "0000:00:07.0")
    )
    files = [engine.mapping(f"recv{n}", 4 + n, {0: 2354}, device="0:27") for n in range(8)]
    files += [engine.mapping(f"send{n}", 12 + n, {0: 2}, 2 * 4096, device="0:27") for n in range(8)]
    mount = "31 25 0:27 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=268435456k"
    tasks = []
    for rank, gpu in enumerate(gpus):
        pools = [{**entry, "device": "0:27"} for entry in engine.pool(rank, 0, 20)]
        tasks.append(
            Task(
                989 + rank,
                ("python3", "/srv/rank.py"),
                980,
                {gpu.pci: 1024 << 20},
                ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"],
                [*files, *pools],
                mems="0",
                caps="000001fffeffffff",
                cgroup="0::/0123456789abcdef0123456789abcdef\n",
                shm_mount=mount,
            )
        )
    logs = []
    for rank, task in enumerate(tasks):
        line = f"vm:{task.pid}:{task.pid} [{rank}] NCCL INFO ncclCommInitRankConfig comm 0x1f1700a0 rank {rank} nranks 2 "
        text = line + f"cudaDev {rank} nvmlDev {rank} busId {6 + rank}0 commId 0x1 - Init START\n"
        logs.append({"pid": task.pid, "path": f"/srv/log/nccl.vm.{task.pid}", "size_bytes": len(text), "text": text})
    nodes = (machine.NodeSpec(0, "0-31", "10"),)
    table = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    table += "GPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n"
    sources = {"nvidia.topo": table, "nccl.logs": logs}
    return host(nodes, {0: "0-31"}, gpus, tasks, word="NV18", sources=sources)


def changed(task: Task, **changes: Any) -> Task:
    """The task with other values."""
    return Task(**{**task.__dict__, **changes})


def mapping_in(device: str, task: Task) -> Task:
    """The task with its files on another file system."""
    return changed(task, buffers=[{**entry, "device": device} for entry in task.buffers])


FIXTURES: Mapping[str, Callable[[], Snapshot]] = {
    "eight-gpus": eight_gpus,
    "two-replicas": two_replicas,
    "two-servers-in-one-container": two_servers_in_one_container,
    "vllm-unit": vllm_unit,
    "nvml-blind": nvml_blind,
    "h200-pair": h200_pair,
}
