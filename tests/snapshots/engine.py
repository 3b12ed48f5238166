"""The engine on the machine: processes with their nccl- files, the container and the unit, as a snapshot holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CONTAINER = "0123456789abcdef" * 4
RING_BYTES = 9_637_888 + 4
POOL_BYTES = 8353 * 4096
CAPS_DEFAULT, CAPS_NICE = "00000000a80425fb", "00000000a88425fb"


def pages(size: int) -> int:
    """Pages of 4 KiB that hold that many bytes."""
    return -(-size // 4096)


def mapping(name: str, inode: int, by_node: Mapping[int, int], size: int = RING_BYTES, **changes: Any) -> dict[str, Any]:
    """One entry of `buffers`: node to pages."""
    made = {
        "file": f"/dev/shm/nccl-{name}",
        "device": "0:56",
        "inode": inode,
        "deleted": True,
        "offset": 0,
        "length": pages(size) * 4096,
        "pages": {str(node): count for node, count in by_node.items()},
        "page_bytes": 4096,
        "policy": "default",
    }
    return {**made, **changes}


def ring(node: int, prefix: str = "ring", inode: int = 100, count: int = 4) -> list[dict[str, Any]]:
    """`count` ring buffers wholly on that node, as each of the two ranks maps them, and one control file."""
    files = [mapping(f"{prefix}{i:02d}", inode + i, {node: pages(RING_BYTES)}) for i in range(count)]
    return [*files, mapping(f"{prefix}ct", inode + 50, {node: 2}, 2 * 4096)]


def pool(rank: int, node: int, inode: int = 200) -> list[dict[str, Any]]:
    """The proxy pool of a rank: its own file, for the CPU only. The rank maps it twice and touches one page of the second."""
    name = f"pool{rank:02d}"
    whole = mapping(name, inode + rank, {node: pages(POOL_BYTES)}, POOL_BYTES)
    return [{**whole, "pages": {str(node): 1}}, whole]


@dataclass(frozen=True)
class Task:
    """A process of the engine as the kernel shows it."""

    pid: int
    command: Sequence[str]
    ppid: int = 4000
    gpus: Mapping[str, int] = field(default_factory=dict)
    devices: Sequence[str] = ()
    buffers: Sequence[Mapping[str, Any]] = ()
    cpus: str = "0-31"
    mems: str = "0-1"
    policy: str = "default"
    caps: str = CAPS_DEFAULT
    cgroup: str = f"0::/system.slice/docker-{CONTAINER}.scope\n"
    nspid: Sequence[int] = ()
    shm_mount: str | None = "901 899 0:56 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm rw,size=33554432k,inode64"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The entry of the `processes` source."""
        comm = self.command[0].rpartition("/")[2][:15] if self.command else "kworker"
        numbers = "\t".join(map(str, self.nspid or [self.pid]))
        status = (
            f"Name:\t{comm}\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{self.pid}\nNgid:\t0\nPid:\t{self.pid}\n"
            f"PPid:\t{self.ppid}\nTracerPid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nFDSize:\t512\nNStgid:\t{numbers}\nNSpid:\t{numbers}\n"
            f"VmRSS:\t 9437184 kB\nThreads:\t64\nCapInh:\t0000000000000000\nCapPrm:\t{self.caps}\nCapEff:\t{self.caps}\n"
            f"CapBnd:\t{self.caps}\nNoNewPrivs:\t0\nSeccomp:\t2\nCpus_allowed_list:\t{self.cpus}\nMems_allowed_list:\t{self.mems}"
        )
        wiped = bool(self.command) and "::" in self.command[0]
        made = {
            "pid": self.pid,
            "ppid": self.ppid,
            "start_ticks": 100_000 + self.pid,
            "uid": 0,
            "comm": comm,
            "command": list(self.command),
            "status": status,
            "cgroup": self.cgroup,
            "cpus": self.cpus,
            "policy_line": f"55d0c0a00000 {self.policy} file=/usr/bin/python3.11 mapped=612 mapmax=5 N0=612 kernelpagesize_kB=4",
            "environ": None if wiped else {"NCCL_CUMEM_ENABLE": "0"},
            "environ_reason": "wiped" if wiped else None,
            "shm_mount": self.shm_mount,
            "shm_bytes": {"size": 32 << 30, "free": 31 << 30} if self.shm_mount else None,
            "nspid": list(self.nspid or [self.pid]),
            "gpu_bytes": dict(self.gpus),
            "devices": list(self.devices),
            "buffers": [dict(entry) for entry in self.buffers],
            "buffers_by": "move_pages",
            "buffers_reason": None,
            "vanished": False,
        }
        return {**made, **self.extra}


def used(tasks: Sequence[Task]) -> dict[str, list[tuple[int, int]]]:
    """NVML's view of the tasks: PCI address to (pid, bytes)."""
    found: dict[str, list[tuple[int, int]]] = {}
    for task in tasks:
        for address, size in task.gpus.items():
            found.setdefault(address, []).append((task.pid, size))
    return found


def sglang(gpus: Sequence[str], node: int, first: int = 4242, **changes: Any) -> list[Task]:
    """An SGLang server, its schedulers (one a GPU, in pairs over SHM) and its detokenizer; buffers on that node."""
    devices = [f"/dev/nvidia{minor}" for minor in range(len(gpus))]
    server = ("python3", "-m", "sglang.launch_server", "--model-path", "/models/m", "--tp", str(len(gpus)), "--port", "30000")
    root = first - 242
    tasks = [Task(root, server, ppid=root - 20, devices=devices, nspid=(root, 1), **changes)]
    for rank, address in enumerate(gpus):
        buffers = [*ring(node), *pool(rank, rank % 2)]
        title = (f"sglang::scheduler_TP{rank}",)
        numbers = (first + rank, 132 + rank)
        tasks.append(Task(first + rank, title, root, {address: 90 << 30}, devices, buffers, nspid=numbers, **changes))
    last = first + len(gpus)
    return [*tasks, Task(last, ("sglang::detokenizer",), root, devices=devices, nspid=(last, 132 + len(gpus)), **changes)]


def container(**changes: Any) -> dict[str, Any]:
    """Docker's word on the container that the server runs in."""
    made = {
        "runtime": "docker",
        "id": CONTAINER,
        "name": "sglang",
        "image": "sglang:patched",
        "image_id": "sha256:" + "0" * 64,
        "pid": 4000,
        "state": "running",
        "restart": "no",
        "privileged": False,
        "cap_add": [],
        "security_opt": [],
        "ipc_mode": "private",
        "shm_size_bytes": 32 << 30,
        "cpuset_cpus": "",
        "cpuset_mems": "",
        "cgroup_parent": "",
        "device_requests": ["count=-1 capabilities=gpu"],
        "devices": [],
        "cdi_devices": [],
        "runtime_name": "runc",
        "mounts": [{"source": "/srv/models", "destination": "/models", "type": "bind"}],
        "env": {"NCCL_CUMEM_ENABLE": "0"},
        "command": ["python3", "-m", "sglang.launch_server", "--model-path", "/models/m", "--tp", "2", "--port", "30000"],
    }
    return {**made, **changes}


def unit(**changes: Any) -> dict[str, Any]:
    """The unit that runs the container in the foreground."""
    made = {
        "id": "sglang.service",
        "active": "active",
        "sub": "running",
        "main_pid": 3900,
        "numa_policy": "",
        "numa_mask": "",
        "allowed_memory_nodes": "",
        "allowed_cpus": "",
        "exec_start": "/usr/bin/docker run --rm --name sglang --gpus all --shm-size 32g sglang:patched",
        "cgroup": "/system.slice/sglang.service",
        "fragment": "/etc/systemd/system/sglang.service",
    }
    return {**made, **changes}
