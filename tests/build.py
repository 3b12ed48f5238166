"""Makes host models for tests: a healthy two-socket host with two GPUs on node 1, changed by what a test names."""

from __future__ import annotations

import dataclasses
from typing import Any

from nearsocket.model.finding import Finding, Status
from nearsocket.model.host import (
    Buffer,
    BufferRole,
    Container,
    Driver,
    Engine,
    Gpu,
    Host,
    Mount,
    Node,
    NodeClaim,
    NodeMemory,
    PciLink,
    Process,
    Replica,
    Socket,
    Unit,
)
from nearsocket.model.snapshot import Source, SourceStatus

GIB = 1 << 30
RING_BYTES = 2354 * 4096
IDLE_BYTES = 600 << 20


def source(text: str | None = None, data: Any = None, status: str = "ok", reason: str | None = None) -> Source:
    """A source as a snapshot holds it."""
    return Source(SourceStatus(status), text, data, reason)


def node(id: int, **changes: Any) -> Node:
    """Node `id` of a 2 x 12 core host, hyper-threads included, 256 GiB with half of it free."""
    cpus = frozenset([*range(12 * id, 12 * id + 12), *range(24 + 12 * id, 36 + 12 * id)])
    memory = NodeMemory(256 * GIB, 128 * GIB, 100 * GIB)
    distances = tuple(10 if other == id else 21 for other in (0, 1))
    return dataclasses.replace(Node(id, id, cpus, memory, False, distances), **changes)


def gpu(index: int, **changes: Any) -> Gpu:
    """GPU `index` on node 1, all sources agreeing, at full link speed."""
    link = PciLink(32.0, 16, 32.0, 16)
    made = Gpu(
        pci=f"0000:{0xC1 + index:02x}:00.0",
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        node=1,
        socket=1,
        claims=(NodeClaim("sysfs", 1, "1"), NodeClaim("nvml", 1, "12-23,36-47")),
        link=link,
        bridges=(f"0000:{0xC0 + index:02x}:01.0",),
        bridge_links={f"0000:{0xC0 + index:02x}:01.0": link},
        root=f"pci0000:{0xC0 + index:02x}",
        driver="nvidia",
        index=index,
        uuid=f"GPU-0000000{index}",
        cpus=node(1).cpus,
        memory_bytes=96 * GIB,
        memory_used_bytes=90 * GIB,
        persistence=True,
        ecc_uncorrected=0,
    )
    return dataclasses.replace(made, **changes)


def buffer(name: str = "aB3dE9", by_node: dict[int, int] | None = None, **changes: Any) -> Buffer:
    """A ring buffer of the default size, all of it on node 1 unless told otherwise."""
    pages = {1: RING_BYTES} if by_node is None else by_node
    made = Buffer(f"/dev/shm/nccl-{name}", f"0:25:{name}", BufferRole.RING, RING_BYTES, pages, True, (4242, 4243), ("default",))
    return dataclasses.replace(made, **changes)


def process(pid: int = 4242, rank: int = 0, **changes: Any) -> Process:
    """An SGLang scheduler bound to node 1, GPU `rank`, in the container `sglang`, holding two ring buffers."""
    title = f"sglang::scheduler_TP{rank}"
    made = Process(
        pid=pid,
        ppid=4000,
        start_ticks=100_000 + pid,
        uid=0,
        comm=title[:15],
        command=(title,),
        title=title,
        cgroup="/system.slice/docker-0123456789ab.scope",
        container="0123456789ab",
        unit=None,
        cpus=node(1).cpus,
        mems_allowed=frozenset({0, 1}),
        policy="bind:1",
        sys_nice=True,
        environ=None,
        environ_reason="wiped",
        gpus=(gpu(rank).pci,),
        gpu_bytes={gpu(rank).pci: 90 * GIB},
        engine=Engine.SGLANG,
        rank=rank,
        shm_mount=Mount("/dev/shm", "tmpfs", "shm", ("rw", "size=33554432k")),
        shm_size_bytes=32 * GIB,
        shm_free_bytes=31 * GIB,
        buffers=(buffer("aB3dE9"), buffer("Zk81Qm")),
        buffers_by="move_pages",
        buffers_reason=None,
    )
    return dataclasses.replace(made, **changes)


def container(**changes: Any) -> Container:
    """The container that the processes run in: SYS_NICE, 32 GiB of /dev/shm, both GPUs, cuMem pinned."""
    made = Container(
        runtime="docker",
        id="0123456789ab",
        name="sglang",
        image="sglang:patched",
        pid=4000,
        privileged=False,
        cap_add=("SYS_NICE",),
        security_opt=(),
        ipc_mode="private",
        shm_size_bytes=32 * GIB,
        cpuset_cpus="",
        cpuset_mems="",
        cgroup_parent="",
        gpu_requests=("all",),
        devices=(),
        cdi_devices=(),
        mounts=(),
        environ={"NCCL_CUMEM_ENABLE": "0"},
        command=("python3", "-m", "sglang.launch_server"),
    )
    return dataclasses.replace(made, **changes)


def unit(**changes: Any) -> Unit:
    """A unit that runs the container by `docker run` in the foreground."""
    made = Unit(
        "sglang.service",
        "active",
        "running",
        3900,
        "",
        "",
        "",
        "",
        "/usr/bin/docker run sglang:patched",
        "/system.slice/sglang.service",
    )
    return dataclasses.replace(made, **changes)


def replica(processes: tuple[Process, ...], **changes: Any) -> Replica:
    """The replica that these processes make up."""
    files = {b.identity: b for p in processes for b in p.buffers}
    gpus = tuple(g for p in processes for g in p.gpus)
    made = Replica(
        "sglang", Engine.SGLANG, tuple(p.pid for p in processes), gpus, (1,), processes[0].container, None, tuple(files.values())
    )
    return dataclasses.replace(made, **changes)


def host(**changes: Any) -> Host:
    """A healthy host: two sockets of one node each, two GPUs on node 1, one replica whose buffers are near by force."""
    processes = changes.pop("processes", (process(4242, 0), process(4243, 1)))
    # Where nothing runs, nothing uses the GPUs' memory: an idle one shows some 0.6 GiB.
    idle = () if processes else ("memory_used_bytes",)
    gpus = tuple(dataclasses.replace(one, **dict.fromkeys(idle, IDLE_BYTES)) for one in changes.pop("gpus", (gpu(0), gpu(1))))
    files = {b.identity: b for p in processes for b in p.buffers}
    made = Host(
        name="gpu1",
        taken_at="2026-01-31T12:00:00Z",
        uid=0,
        kernel="6.12.0-1-amd64",
        os_id="debian",
        sockets=(Socket(0, (0,), node(0).cpus), Socket(1, (1,), node(1).cpus)),
        nodes=(node(0), node(1)),
        gpus=gpus,
        nics=(),
        mounts=(Mount("/dev/shm", "tmpfs", "tmpfs", ("rw",)),),
        processes=processes,
        replicas=(replica(processes),) if processes else (),
        buffers=tuple(files.values()),
        containers=(container(),),
        packages=(),
        holds=frozenset(),
        driver=Driver("580.95.05", "open", "580.95.05", "580.95.05", 13000, {}),
        modules=frozenset({"nvidia", "nvidia_uvm"}),
        units=(unit(),),
        sysctl={"vm.zone_reclaim_mode": "0", "kernel.numa_balancing": "0"},
        sources={
            "processes": source(data=[]),
            "nvml": source(data={}),
            "nodes": source(data={}),
            "pci": source(data={}),
            "containers": source(data=[]),
            "nccl.conf": source(data={}),
            "nccl.logs": source(data=[]),
        },
    )
    return dataclasses.replace(made, **changes)


def worst(findings: tuple[Finding, ...]) -> Status:
    """The worst status of these findings: fail, unknown, warn, pass, not-applicable."""
    order = [Status.NOT_APPLICABLE, Status.PASS, Status.WARN, Status.UNKNOWN, Status.FAIL]
    return max((finding.status for finding in findings), key=order.index)
