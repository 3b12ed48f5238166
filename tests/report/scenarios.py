"""Reports to render: each scenario a function, its text in tests/data/report/NAME.txt."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

from nearsocket.model.cpulist import parse
from nearsocket.model.errors import EXIT_CLEAN, EXIT_FAILURES, EXIT_UNKNOWN, EXIT_WARNINGS
from nearsocket.model.finding import Evidence, Finding, Status, Waived
from nearsocket.model.host import BufferRole, Gpu, Host, NodeClaim, NodeMemory, PciLink, Process, Replica, Socket
from nearsocket.model.report import HostReport, Maintenance, Report
from nearsocket.report import terminal
from tests import build

PLACEMENT, ENFORCED = "nccl.buffer-placement", "nccl.placement-enforced"
_CODES = {Status.FAIL: EXIT_FAILURES, Status.UNKNOWN: EXIT_UNKNOWN, Status.WARN: EXIT_WARNINGS}
_ORDER = [Status.NOT_APPLICABLE, Status.PASS, Status.WARN, Status.UNKNOWN, Status.FAIL]


def finding(
    id: str, status: Status, summary: str, subject: str = "sglang", remedy: str | None = None, text: str = "seen"
) -> Finding:
    """A finding with one piece of evidence."""
    return Finding(id, status, subject, summary, (Evidence("/proc/4242/numa_maps", text),), remedy)


def one(host: Host | None, *findings: Finding, **changes: object) -> HostReport:
    """One host's report; the status is the worst of what counts."""
    counted = [f.status for f in findings if f.waived is None] or [Status.NOT_APPLICABLE]
    name = host.name if host else "gpu9"
    made = HostReport(name, max(counted, key=_ORDER.index), "2026-01-31T12:00:00Z", host, findings)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def report(*hosts: HostReport) -> Report:
    """A report of these hosts; those in maintenance are out of the code."""
    status = max((h.status for h in hosts if not h.maintenance), key=_ORDER.index, default=Status.NOT_APPLICABLE)
    return Report(hosts, status, _CODES.get(status, EXIT_CLEAN))


def passes() -> tuple[Finding, ...]:
    """What most hosts say."""
    return (
        finding("topology.gpu-node", Status.PASS, "GPU 0: sysfs and NVML agree on node 1", "GPU 0"),
        finding("topology.gpu-node", Status.PASS, "GPU 1: sysfs and NVML agree on node 1", "GPU 1"),
        finding("nccl.shm-size", Status.PASS, "31 of 32 GiB of /dev/shm are free"),
        finding("driver.versions-match", Status.PASS, "module and library are 580.95.05", "gpu1"),
        finding("memory.zfs-arc", Status.NOT_APPLICABLE, "no ZFS on this host", "gpu1"),
    )


def placed(by_node: dict[int, int], **changes: object) -> Host:
    """The usual host, its two ring buffers lying as told, its near node full of page cache where they lie far."""
    files = (build.buffer("aB3dE9", by_node), build.buffer("Zk81Qm", by_node))
    processes = tuple(build.process(pid, rank, buffers=files, policy="default") for pid, rank in ((4242, 0), (4243, 1)))
    full = NodeMemory(256 * build.GIB, 3 * build.GIB, 221 * build.GIB)
    nodes = (build.node(0), build.node(1, memory=full))
    return build.host(**{"processes": processes, "nodes": nodes, **changes})


def healthy() -> Report:
    """Two GPUs, one replica, near by force."""
    good = (
        finding(PLACEMENT, Status.PASS, "18.4 MiB of ring buffers, all on node 1, near"),
        finding(ENFORCED, Status.PASS, "both ranks are bound to node 1"),
    )
    return report(one(build.host(), *good, *passes()))


def far() -> Report:
    """The fault that this project exists for."""
    numa_maps = (
        "7f5e8bf5f000 default file=/dev/shm/nccl-aB3dE9\\040(deleted) dirty=2354 mapmax=2 active=0 N0=2354 kernelpagesize_kB=4"
    )
    remedy = (
        "# free the near node's page cache, then start again\n"
        "sync -f /models && numactl --membind=1 --cpunodebind=1 /usr/local/lib/nearsocket/relief --node 1 --keep-serving sglang\n"
        "systemctl restart sglang.service"
    )
    summary = (
        "18.4 of 18.4 MiB of ring buffers lie on node 0, socket 0; the GPUs that use them are on socket 1, every all-reduce crosses"
    )
    wrong = (
        finding(PLACEMENT, Status.FAIL, summary, remedy=remedy, text=numa_maps),
        Finding(ENFORCED, Status.NOT_APPLICABLE, "sglang", "nothing near to enforce"),
        Finding(
            "nccl.cumem-in-force",
            Status.UNKNOWN,
            "sglang",
            "no NCCL log shows which allocator is used",
            (),
            "export NCCL_DEBUG=INFO",
        ),
        finding(
            "memory.near-free",
            Status.WARN,
            "node 1 has 3 of 256 GiB free, 221 GiB are page cache",
            "node 1",
            "sync; echo 1 > /proc/sys/vm/drop_caches",
            "Node 1 MemFree: 3145728 kB\nNode 1 FilePages: 231735296 kB\nNode 1 Dirty: 12 kB",
        ),
    )
    return report(one(placed({0: build.RING_BYTES}), *wrong, *passes()))


def split() -> Report:
    """Part near, part far."""
    half = build.RING_BYTES // 2
    wrong = finding(PLACEMENT, Status.FAIL, "9.2 of 18.4 MiB of ring buffers lie far", remedy="systemctl restart sglang.service")
    return report(one(placed({0: half, 1: half}), wrong, *passes()))


def no_gpu() -> Report:
    """A machine that has none."""
    host = build.host(gpus=(), processes=(), replicas=(), containers=(), units=(), modules=frozenset())
    host = dataclasses.replace(host, driver=dataclasses.replace(host.driver, module_loaded=None))
    nothing = (
        Finding(
            "topology.gpu-node", Status.NOT_APPLICABLE, host.name, "no GPU on the PCI bus", (Evidence("/sys/bus/pci/devices", ""),)
        ),
        Finding(PLACEMENT, Status.NOT_APPLICABLE, host.name, "no process holds a GPU or an nccl- file"),
        finding("kernel.numa-balancing", Status.PASS, "kernel.numa_balancing is 0", host.name),
    )
    return report(one(host, *nothing))


def snc() -> Report:
    """Four nodes a socket, one without memory, one without CPUs; the far bytes lie on node 2; one GPU has no node."""
    nodes = tuple(
        build.node(
            id,
            socket=id // 4,
            cpus=frozenset() if id == 3 else parse(f"{id * 8}-{id * 8 + 7},{64 + id * 8}-{71 + id * 8}"),
            memory=None if id == 6 else NodeMemory(64 * build.GIB, (60 - 8 * id) * build.GIB, 6 * id * build.GIB),
            memoryless=id == 6,
            distances=(10, 12, 12, 12, 21, 21, 21, 21),
        )
        for id in range(8)
    )
    sockets = tuple(Socket(s, tuple(range(4 * s, 4 * s + 4)), parse(f"{s * 32}-{s * 32 + 31}")) for s in (0, 1))
    gpus = (
        build.gpu(0, node=4, socket=1),
        build.gpu(1, node=5, socket=1, link=PciLink(16.0, 8, 32.0, 16)),
        build.gpu(2, node=None, socket=None, claims=(NodeClaim("sysfs", None, "-1"), NodeClaim("nvml", None, "N/A"))),
    )
    host = placed({2: build.RING_BYTES, 4: build.RING_BYTES // 8}, nodes=nodes, sockets=sockets, gpus=gpus)
    wrong = finding(PLACEMENT, Status.FAIL, "18.4 MiB of ring buffers lie on node 2", remedy="systemctl restart sglang.service")
    return report(one(host, wrong))


def eight() -> Report:
    """Eight GPUs, four a socket, two replicas of four: one near, one far; a proxy pool beside."""
    gpus = tuple(build.gpu(i, node=i // 4, socket=i // 4, claims=(NodeClaim("sysfs", i // 4, str(i // 4)),)) for i in range(8))
    processes: list[Process] = []
    replicas: list[Replica] = []
    for number, name in ((0, "sglang-a"), (1, "sglang-b")):
        pids = tuple(4200 + 10 * number + rank for rank in range(4))
        files = (
            *(build.buffer(f"{name}{i}", {1: build.RING_BYTES}, pids=pids) for i in range(8)),
            build.buffer(f"{name}-pool", {number: 33 << 20}, pids=pids, role=BufferRole.PROXY_POOL, size_bytes=33 << 20),
        )
        mine = [gpu.pci for gpu in gpus[4 * number : 4 * number + 4]]
        ours = tuple(build.process(p, r, buffers=files, gpus=(mine[r],)) for r, p in enumerate(pids))
        processes += ours
        replicas.append(build.replica(ours, name=name, sockets=(number,)))
    host = build.host(gpus=gpus, processes=tuple(processes), replicas=tuple(replicas))
    wrong = finding(
        PLACEMENT, Status.FAIL, "73.5 MiB of ring buffers lie on node 1", "sglang-a", "systemctl restart sglang-a.service"
    )
    right = finding(PLACEMENT, Status.PASS, "73.5 MiB of ring buffers, all near", "sglang-b")
    return report(one(host, wrong, right, *passes()))


def many() -> Report:
    """A fleet: clean, warned, failed, unreachable, in maintenance."""
    unreached = Finding(
        "host.reachable", Status.UNKNOWN, "gpu3", "no route to host", (Evidence("ssh gpu3", "no route"),), "ssh gpu3 true"
    )
    warned = finding(ENFORCED, Status.WARN, "near by luck: the next restart draws again", remedy="nearsocket plan gpu2")
    failed = far().hosts[0]
    return report(
        one(build.host(), *passes()),
        one(build.host(name="gpu2"), warned, *passes()),
        one(None, unreached, name="gpu3", reason="ssh: connect to port 22: no route to host"),
        dataclasses.replace(failed, name="gpu4"),
        dataclasses.replace(failed, name="gpu5", maintenance=Maintenance("2026-02-28", "board swap")),
    )


def waived() -> Report:
    """A waived failure, and the host in maintenance."""
    wrong = finding(PLACEMENT, Status.FAIL, "18.4 MiB of ring buffers lie on node 0", remedy="systemctl restart sglang.service")
    wrong = dataclasses.replace(wrong, waived=Waived("benchmark rerun until the board is swapped", "ops", "2026-03-01"))
    maintenance = Maintenance("2026-02-28", "board swap")
    return report(one(placed({0: build.RING_BYTES}), wrong, *passes(), maintenance=maintenance))


EVIL = "x\x1b[31m\x1b]0;pwned\x07\u202e\n[bold red]y[/] :skull: \x9b2J\udc80\u200b"


def hostile() -> Report:
    """Names that want to be obeyed."""
    gpus: tuple[Gpu, ...] = (build.gpu(0, name=EVIL), build.gpu(1, name=EVIL, pci=build.gpu(1).pci))
    host = placed({0: build.RING_BYTES}, name=EVIL, gpus=gpus, kernel=EVIL)
    host = dataclasses.replace(host, replicas=tuple(dataclasses.replace(r, name=EVIL) for r in host.replicas))
    wrong = Finding(PLACEMENT, Status.FAIL, EVIL, EVIL, (Evidence(EVIL, EVIL),), f"docker restart '{EVIL}'")
    set_aside = Finding("engine.binding", Status.WARN, EVIL, EVIL, (), EVIL, Waived(EVIL, EVIL, EVIL))
    lost = Finding("host.reachable", Status.UNKNOWN, EVIL, EVIL)
    return report(
        one(host, wrong, set_aside), one(None, lost, name=EVIL, reason=EVIL), one(host, maintenance=Maintenance(EVIL, EVIL))
    )


SCENARIOS: dict[str, Callable[[], Report]] = {
    "healthy": healthy,
    "far": far,
    "split": split,
    "no_gpu": no_gpu,
    "snc": snc,
    "eight": eight,
    "many": many,
    "waived": waived,
    "hostile": hostile,
}

FOLDER = Path(__file__).parent.parent / "data" / "report"
#: File name (without .txt) to scenario, width in cells, encoding, and what the caller asks for.
GOLDEN: dict[str, tuple[str, int, str, dict[str, bool]]] = {
    **{name: (name, 80, "utf-8", {}) for name in SCENARIOS},
    "far-40": ("far", 40, "utf-8", {}),
    "far-200": ("far", 200, "utf-8", {}),
    "far-ascii": ("far", 80, "ascii", {}),
    "far-verbose": ("far", 80, "utf-8", {"verbose": True}),
    "many-quiet": ("many", 80, "utf-8", {"quiet": True}),
}


def text_of(rendered: Report, width: int = 80, encoding: str = "utf-8", **how: bool) -> str:
    """The report as a stream of that encoding gets it; raises where a character cannot be encoded."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    terminal.show(rendered, terminal.console(stream, width), **how)
    stream.flush()
    return raw.getvalue().decode(encoding)


def golden(name: str) -> str:
    """What the file of that name must hold now."""
    scenario, width, encoding, how = GOLDEN[name]
    return text_of(SCENARIOS[scenario](), width, encoding, **how)


if __name__ == "__main__":  # python -m tests.report.scenarios: write the files anew, then look at the difference
    for each in GOLDEN:
        (FOLDER / f"{each}.txt").write_text(golden(each), encoding="utf-8")
