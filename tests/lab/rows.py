"""The table of planted faults against findings: what the lab's tests plant and expect, and the page that is made of it.

`python -m tests.lab.rows docs/standins.md` writes the table into the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.standins.gpu.nvidia_ctk import FAULTS

#: What the machine is put to before each fault of the host.
PACKAGES = "libnvidia-compute-standin nvidia-kernel-standin nvidia-utils-standin"
AT_REST = f"apt-mark hold {PACKAGES} >/dev/null; sysctl -qw kernel.numa_balancing=0"
#: GPU 1 holds a rank of the engine, GPU 3 nothing.
GPU1, GPU3 = "0000:41:00.0", "0000:81:00.0"
_NODE = f"/sys/bus/pci/devices/{GPU1}/numa_node"
_HANG = "/sys/module/nvidia/parameters/hang"


def fault(name: str, content: str = "") -> str:
    """A shell command that switches a fault on by its file."""
    return f"mkdir -p {FAULTS}; printf '%s' '{content}' >{FAULTS}/{name}"


@dataclass(frozen=True)
class HostRow:
    """A fault of the host, beside an engine whose buffers cuMem holds near: its planting, and every finding that it changes."""

    name: str
    words: str
    plant: str
    found: Mapping[str, str]
    undo: str = f"rm -f {FAULTS}/*"


#: What is not known of a GPU that NVML does not tell of.
_SILENT = dict.fromkeys(("driver.persistence", "gpu.ecc", "gpu.throttling", "topology.pcie-link"), "unknown")

HOST_ROWS = (
    HostRow("numa-node-unknown", "sysfs: node -1", f"echo -1 >{_NODE}", {"topology.gpu-node": "warn"}, f"echo 0 >{_NODE}"),
    HostRow(
        "numa-node-wrong",
        "sysfs: the other socket's node",
        f"echo 1 >{_NODE}",
        {
            "topology.gpu-node": "fail",
            "engine.binding": "unknown",
            "nccl.buffer-placement": "unknown",
            "nccl.placement-enforced": "unknown",
        },
        f"echo 0 >{_NODE}",
    ),
    HostRow("nvml-does-not-know-the-node", "NVML refuses the node; sysfs knows it", fault("nvml-node-1"), {}),
    HostRow("persistence-off", "persistence mode off", fault("persistence-off-1"), {"driver.persistence": "warn"}),
    HostRow("narrow-link", "8 of 16 PCIe lanes", fault("link-width-1", "8"), {"topology.pcie-link": "fail"}),
    HostRow("ecc-corrected", "3 corrected ECC errors", fault("ecc-corrected-1", "3"), {"gpu.ecc": "warn"}),
    HostRow("ecc-uncorrected", "7 uncorrected ECC errors", fault("ecc-1", "7"), {"gpu.ecc": "fail"}),
    HostRow("row-remap-pending", "a row waits to be remapped", fault("remap-pending-1"), {"gpu.ecc": "fail"}),
    HostRow("throttled", "the card slows down for heat", fault("throttle-1"), {"gpu.throttling": "fail"}),
    HostRow("power-cap", "the card runs into its power limit (no fault)", fault("power-cap-1"), {}),
    HostRow(
        "gpu-missing",
        "on the bus, not in NVML",
        fault("missing-3"),
        {"gpu.present": "fail", **_SILENT},
    ),
    HostRow(
        "version-mismatch",
        "library and module of two versions: NVML refuses, nvidia-smi exits with 18",
        fault("version-mismatch"),
        {"driver.versions-match": "fail", "gpu.present": "unknown", **_SILENT},
    ),
    HostRow(
        "nvidia-smi-hangs",
        "`nvidia-smi` gives no answer",
        fault("nvidia-smi-hang"),
        {"host.reachable": "warn"},
    ),
    HostRow(
        "driver-hangs",
        "the module keeps whoever opens a device in the kernel, unkillable (D state)",
        f"echo 1 >{_HANG}",
        {"host.reachable": "warn", "gpu.present": "unknown", **_SILENT},
        f"echo 0 >{_HANG}",
    ),
    HostRow(
        "packages-not-held",
        "one of the driver's packages not held",
        "apt-mark unhold nvidia-kernel-standin",
        {"driver.package-holds": "warn"},
        AT_REST,
    ),
    HostRow("numa-balancing", "NUMA balancing on", "sysctl -w kernel.numa_balancing=1", {"kernel.numa-balancing": "warn"}, AT_REST),
)

#: What an engine row is judged by.
PLACEMENT = ("nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force")
HOST, DOCKER, PODMAN = "host", "docker", "podman"


@dataclass(frozen=True)
class EngineRow:
    """A start of the engine: its variables, faults before it and after its connection, where it runs, what the findings are.

    `options` are those of `docker run` and `podman run`; `full` fills the near node with page cache first.
    """

    name: str
    words: str
    expected: tuple[str, str, str]
    variables: str = "NCCL_CUMEM_ENABLE=1"
    faults: tuple[str, ...] = ()
    late: tuple[tuple[str, str], ...] = ()
    full: bool = False
    where: tuple[str, ...] = (HOST, DOCKER, PODMAN)
    options: Mapping[str, str] = field(default_factory=lambda: {DOCKER: "--cap-add SYS_NICE", PODMAN: "--init"})


#: podman's own filter lets mbind(2) through without a capability, Docker's does not: podman gets one that does not either.
FILTER = "/opt/nearsocket-standin/no-mbind.json"
FILTERED = '{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mbind"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}'
NO_MBIND = {DOCKER: "", PODMAN: f"--init --security-opt seccomp={FILTER}"}
OFF = "NCCL_CUMEM_ENABLE=0"
ENGINE_ROWS = (
    EngineRow("cumem", "cuMem in force (Docker with SYS_NICE, podman as it is)", ("pass", "pass", "pass")),
    EngineRow(
        "fallback",
        "cuMem wanted, mbind refused (Docker without SYS_NICE, podman under a filter): NCCL falls back",
        ("pass", "warn", "fail"),
        where=(DOCKER, PODMAN),
        options=NO_MBIND,
    ),
    EngineRow("variable-off", "`NCCL_CUMEM_ENABLE=0`, buffers near", ("pass", "warn", "fail"), OFF, where=(HOST,)),
    EngineRow(
        "host-path-off",
        "`NCCL_CUMEM_HOST_ENABLE=0`",
        ("pass", "warn", "fail"),
        "NCCL_CUMEM_ENABLE=1 NCCL_CUMEM_HOST_ENABLE=0",
        where=(HOST,),
    ),
    EngineRow("legacy", "both ranks in one process", ("pass", "warn", "fail"), faults=("legacy",)),
    EngineRow("split", "half of each ring file far", ("fail", "warn", "fail"), OFF, ("split",)),
    EngineRow("far", "ring files far", ("fail", "warn", "fail"), OFF, ("far",), where=(HOST,)),
    EngineRow(
        "near-node-full",
        "nothing planted: unbound, the near node full of page cache",
        ("fail", "warn", "fail"),
        OFF,
        full=True,
        where=(HOST, DOCKER),
    ),
    EngineRow("rank-dead", "one of two ranks dead, the other judged", ("pass", "warn", "fail"), OFF, late=(("dead-rank", "1"),)),
)

START, END = "<!-- rows: made by python -m tests.lab.rows docs/standins.md -->", "<!-- rows end -->"


def _findings(found: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {status}" for name, status in found) or "none"


def table() -> str:
    """The rows as two tables in Markdown."""
    lines = ["| fault of the host | finding that changes, and no other |", "| --- | --- |"]
    lines += [f"| {row.words} | {_findings(sorted(row.found.items()))} |" for row in HOST_ROWS]
    lines += ["", f"| engine | on | {' | '.join(PLACEMENT)} |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {row.words} | {', '.join(row.where)} | {' | '.join(row.expected)} |" for row in ENGINE_ROWS]
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the table between its two marks. ValueError where they are missing."""
    before, mark, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError("expected the marks of the table in the page, found none")
    return f"{before}{START}\n\n{table()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
