"""Hosts that the checks of NCCL and of engines are tried on, made from tests.build."""

from __future__ import annotations

import dataclasses
from typing import Any

from nearsocket.model.host import Buffer, Host, Mount, Node, Process, Socket
from tests import build

LOG_HEAD = "gpuhost:4242:4242 [0] NCCL INFO "
CUMEM = (
    "NCCL version 2.30.7+cuda13.0",
    "cudaDriverVersion 13000",
    "NCCL_CUMEM_ENABLE set by environment to 1.",
    "comm 0x55aa rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0",
    "CUMEM Host Alloc Size 10485760 pointer 0x7f2200000000 handle 0x55aa numa 1 dev 4 granularity 2097152",
    "CUMEM allocated shareable buffer 0x7f2200000000 size 9637888",
    "Channel 00/0 : 0[4] -> 1[5] via SHM/direct",
)
P2P = ("NCCL version 2.30.7+cuda13.0", "NCCL_CUMEM_ENABLE set by environment to 0.", "Channel 00/0 : 0[4] -> 1[5] via P2P/CUMEM")
FILES = (
    "NCCL version 2.30.7+cuda13.0",
    "cudaDriverVersion 13000",
    "NCCL_CUMEM_ENABLE set by environment to 0.",
    "MMAP allocated shareable host buffer /dev/shm/nccl-aB3dE9 size 9637888 ptr 0x7f2000000000",
    "Channel 00/0 : 0[4] -> 1[5] via SHM/direct",
)


def log(lines: tuple[str, ...]) -> str:
    """A log of these messages."""
    return "".join(f"{LOG_HEAD}{line}\n" for line in lines)


def ranks(count: int = 2, **changes: Any) -> tuple[Process, ...]:
    """The ranks of the default replica, all changed alike; each writes the same log under its own process number."""
    made = []
    for rank in range(count):
        one = dataclasses.replace(build.process(4242 + rank, rank), **changes)
        text = one.nccl_log.replace(":4242:4242 [0]", f":{one.pid}:{one.pid} [{rank}]") if one.nccl_log else None
        made.append(dataclasses.replace(one, nccl_log=text))
    return tuple(made)


def running(count: int = 2, box: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **changes: Any) -> Host:
    """The default host with its ranks changed alike; `box` changes the container, `more` the host."""
    made = build.host(processes=ranks(count, **changes), containers=(build.container(**(box or {})),))
    return dataclasses.replace(made, **(more or {}))


def unbound(**changes: Any) -> Host:
    """The default host with nothing bound: policy default, both nodes allowed."""
    return running(**{"policy": "default", **changes})


def far_file(name: str = "aB3dE9") -> Buffer:
    """A ring file that lies on node 0, while the GPUs are on node 1."""
    return build.buffer(name, {0: build.RING_BYTES})


def shm(policy: str | None, size: str = "33554432k") -> Mount:
    """A tmpfs at /dev/shm with that policy."""
    options = ("rw", f"size={size}", *((f"mpol={policy}",) if policy else ()))
    return Mount("/dev/shm", "tmpfs", "shm", options, policy)


def two_sockets_group() -> Host:
    """Four ranks over two sockets, ranks 0 and 1 on node 0, 2 and 3 on node 1, each bound to its own node."""
    gpus = tuple(build.gpu(i, node=i // 2, socket=i // 2, claims=(), cpus=build.node(i // 2).cpus) for i in range(4))
    made = []
    for rank in range(4):
        home, after = rank // 2, (rank + 1) % 4
        own = build.buffer(f"own00{rank}", {home: build.RING_BYTES}, pids=(4242 + rank, 4242 + after))
        before = build.buffer(
            f"own00{(rank - 1) % 4}", {(rank - 1) % 4 // 2: build.RING_BYTES}, pids=(4242 + (rank - 1) % 4, 4242 + rank)
        )
        cpus = build.node(home).cpus
        made.append(build.process(4242 + rank, rank, cpus=cpus, policy=f"bind:{home}", buffers=(own, before)))
    processes = tuple(made)
    group = build.replica(processes, sockets=(0, 1))
    return build.host(gpus=gpus, processes=processes, replicas=(group,))


def one_socket() -> Host:
    """A host with one socket of one node; its GPUs are there."""
    home = build.node(0, distances=(10,))
    gpus = tuple(build.gpu(i, node=0, socket=0, claims=()) for i in (0, 1))
    file = build.buffer("aB3dE9", {0: build.RING_BYTES})
    free: dict[str, Any] = {"policy": "default", "mems_allowed": frozenset({0}), "cpus": home.cpus, "buffers": (file,)}
    return build.host(nodes=(home,), sockets=(Socket(0, (0,), home.cpus),), gpus=gpus, processes=ranks(**free))


def snc_nodes() -> tuple[tuple[Node, ...], tuple[Socket, ...]]:
    """Two sockets of two nodes each: nodes 0 and 1 on socket 0, 2 and 3 on socket 1."""
    nodes = tuple(
        Node(i, i // 2, frozenset(range(6 * i, 6 * i + 6)), build.node(0).memory, False, (10, 12, 21, 21)) for i in range(4)
    )
    return nodes, tuple(Socket(s, (2 * s, 2 * s + 1), nodes[2 * s].cpus | nodes[2 * s + 1].cpus) for s in (0, 1))


def snc(policy: str, at: int, **changes: Any) -> Host:
    """Four nodes on two sockets, the GPUs on node 3; the ranks have that policy and their file lies on node `at`."""
    nodes, sockets = snc_nodes()
    gpus = tuple(build.gpu(i, node=3, socket=1, claims=()) for i in (0, 1))
    file = build.buffer("aB3dE9", {at: build.RING_BYTES})
    live = {"policy": policy, "mems_allowed": frozenset(range(4)), "cpus": sockets[1].cpus, "buffers": (file,), **changes}
    return build.host(nodes=nodes, sockets=sockets, gpus=gpus, processes=ranks(**live))
