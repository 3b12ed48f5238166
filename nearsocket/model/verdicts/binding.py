"""Where a process can put memory, as the kernel enforces it now, and whether that is near its GPU.

The live policy and cpuset are judged, never the arguments that asked for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.exitcode import severity
from nearsocket.model.finding import Evidence, Status
from nearsocket.model.host import Host, Process
from nearsocket.model.near import of_process, own_gpus
from nearsocket.model.text import brief
from nearsocket.model.verdicts.groups import Group, who

_POLICY = re.compile(r"(?P<mode>[a-z]+(?: interleave| \(many\))?)(?:=[a-z|]+)?(?::(?P<nodes>[0-9,-]+))?\Z")


@dataclass(frozen=True)
class Reach:
    """The nodes on which new pages may land. `by` is what limits them (`cpuset`, `policy`, `mount`), None where nothing does."""

    nodes: frozenset[int]
    by: Optional[str]


def parse_policy(text: Optional[str]) -> tuple[str, frozenset[int]]:
    """Mode and nodes of a policy text such as `bind=static:0-1` (kernel mpol_to_str); (`""`, empty) where it is none."""
    match = _POLICY.match((text or "").strip())
    if not match:
        return "", frozenset()
    try:
        return match["mode"], cpulist.parse(match["nodes"] or "")
    except ValueError:
        return "", frozenset()


def memory_nodes(host: Host) -> frozenset[int]:
    """The nodes that have memory."""
    return frozenset(node.id for node in host.nodes if not node.memoryless)


def allowed_nodes(host: Host, process: Process) -> frozenset[int]:
    """The process's Mems_allowed, without nodes that have no memory; empty where it was not read."""
    return (process.mems_allowed & memory_nodes(host)) or process.mems_allowed


def memory_reach(host: Host, process: Process) -> Optional[Reach]:
    """Where the task's own new pages may land: `bind` within the cpuset, else the cpuset. None where neither was read.

    `prefer`, `interleave` and `local` fall back to every allowed node, so they limit nothing.
    """
    allowed = allowed_nodes(host, process)
    mode, nodes = parse_policy(process.policy)
    if mode == "bind" and nodes:
        # A bind that shares no node with the cpuset is not held by the kernel: the cpuset is.
        held = nodes & allowed if allowed else nodes
        if held:
            return Reach(held, "policy")
    if not allowed:
        return None
    narrowed = bool(memory_nodes(host) - allowed)
    if not narrowed and not mode:
        return None
    return Reach(allowed, "cpuset" if narrowed else None)


def shm_reach(host: Host, process: Process) -> Optional[Reach]:
    """Where the pages of a new file in the process's /dev/shm may land: the mount's policy comes before the task's.

    A mount's `bind` holds where it shares a node with the cpuset (a disjoint mask is ignored); any other mount policy
    puts the task's own aside. Source: kernel mm/shmem.c, mpol_shared_policy_init; run in the lab.
    """
    mode, nodes = parse_policy(process.shm_mount.policy if process.shm_mount else None)
    if mode in ("", "default"):
        return memory_reach(host, process)
    allowed = allowed_nodes(host, process)
    if not allowed:
        return None
    if mode == "bind":
        return Reach(nodes & allowed, "mount") if nodes & allowed else memory_reach(host, process)
    return Reach(allowed, "cpuset" if memory_nodes(host) - allowed else None)


def near_cpus(host: Host, near: Iterable[int]) -> frozenset[int]:
    """The CPUs of these nodes."""
    return frozenset(cpu for node in map(host.node, near) if node is not None for cpu in node.cpus)


def near_by_force(host: Host, process: Process) -> Optional[str]:
    """What holds the process's /dev/shm files near: `policy`, `cpuset`, `mount`, or `socket` where but one has memory.

    None where nothing does, or where it is not known. What lets pages land on two sockets holds nothing, whatever counts as near.
    """
    near, reach = of_process(host, process), shm_reach(host, process)
    if not near or reach is None or not reach.nodes or not reach.nodes <= near:
        return None
    return (reach.by or "socket") if _within_one_socket(host, reach.nodes) else None


def _within_one_socket(host: Host, nodes: frozenset[int]) -> bool:
    sockets = {host.socket_of(node) for node in nodes}
    return len(nodes) == 1 or (len(sockets) == 1 and None not in sockets)


def bound_group(host: Host, group: Group) -> Optional[str]:
    """What holds every rank's /dev/shm files near, in words; None where one rank's are not held."""
    holders = [near_by_force(host, process) for process in group.ranks]
    if not holders or None in holders:
        return None
    names = {
        "policy": "a bound memory policy",
        "cpuset": "a cpuset",
        "mount": "a bound /dev/shm mount",
        "socket": "the only socket with memory",
    }
    return " and ".join(dict.fromkeys(names[holder] for holder in holders if holder))


def live_evidence(process: Process) -> tuple[Evidence, ...]:
    """What the kernel enforces on the process now: its CPUs, nodes and policy, as /proc tells them."""
    cpus = cpulist.render(process.cpus) or "not read"
    mems = cpulist.render(process.mems_allowed) or "not read"
    status = f"{who(process)}: Cpus_allowed_list {cpus}, Mems_allowed_list {mems}"
    policy = f"task policy {brief(process.policy) if process.policy else 'not read'}"
    return (Evidence(f"/proc/{process.pid}/status", status), Evidence(f"/proc/{process.pid}/numa_maps", policy))


def near_evidence(host: Host, processes: Iterable[Process]) -> tuple[Evidence, ...]:
    """Where the GPUs of these processes are, with the source that says it."""
    if host.near is not None:
        return (Evidence("--near", f"node {cpulist.render(host.near)}"),)
    known = tuple(processes)
    shown = []
    for pci in dict.fromkeys(pci for process in known for pci in process.gpus):
        gpu = host.gpu(pci)
        claims = ", ".join(f"{brief(c.source)} says {brief(c.text, 40)}" for c in gpu.claims) if gpu else "not in the PCI list"
        where = f"node {gpu.node}, socket {gpu.socket}" if gpu and gpu.node is not None else "node not known"
        shown.append(Evidence(f"GPU {brief(pci, 20)}", f"{where} ({claims})" if claims else where))
    return (*shown, *(line for process in known for line in _left_out(host, process)))


def _left_out(host: Host, process: Process) -> tuple[Evidence, ...]:
    """Which of the process's GPUs were not taken for its own, with the bytes on each."""
    own = own_gpus(host, process)
    if set(own) == set(process.gpus):
        return ()
    held = ", ".join(f"{process.gpu_bytes.get(pci) or 'unknown'} bytes on {brief(pci, 20)}" for pci in process.gpus)
    taken = f"works on {', '.join(brief(pci, 20) for pci in own)}" if own else "which socket it works on is not known"
    return (Evidence(f"GPU memory of {who(process)}", f"{held}: {taken}"),)


@dataclass(frozen=True)
class RankVerdict:
    """How one rank is bound: status and a phrase for the summary."""

    process: Process
    status: Status
    text: str


def judge_binding(host: Host, process: Process) -> RankVerdict:
    """Judge one rank's live CPUs and memory nodes against its GPU's socket."""
    near, reach, name = of_process(host, process), memory_reach(host, process), who(process)
    if near is None:
        return RankVerdict(process, Status.UNKNOWN, f"{name}: the node of its GPU is not known")
    wanted, cpus = near_cpus(host, near), process.cpus
    at = f"node {cpulist.render(near)}"
    if reach is not None and not reach.nodes & near:
        return RankVerdict(
            process, Status.FAIL, f"{name} takes memory from node {cpulist.render(reach.nodes)} only, its GPU is at {at}"
        )
    if cpus and wanted and not cpus & wanted:
        return RankVerdict(process, Status.FAIL, f"{name} runs on CPUs {cpulist.render(cpus)}, all far from its GPU at {at}")
    if reach is None or not cpus or not wanted:
        missing = "memory policy" if reach is None else "CPUs"
        return RankVerdict(process, Status.UNKNOWN, f"{name}: its {missing} could not be read")
    if not reach.nodes <= near:
        policy = brief(process.policy or "default", 40)
        free = f"may take memory from node {cpulist.render(reach.nodes)} (policy {policy})"
        return RankVerdict(process, Status.WARN, f"{name} {free}, its GPU is at {at}")
    if not cpus <= wanted:
        return RankVerdict(process, Status.WARN, f"{name} may run on {len(cpus - wanted)} CPUs far from its GPU at {at}")
    return RankVerdict(process, Status.PASS, f"{name} is held at node {cpulist.render(reach.nodes)}, near its GPU")


def worst(verdicts: Iterable[RankVerdict]) -> RankVerdict:
    """The verdict that decides for the group, the first of the worst status."""
    return max(verdicts, key=lambda verdict: severity(verdict.status))
