"""What has to hold before cuMem can be pinned, and what speaks against it on this host.

NCCL's own log says it best (`cumem.obstacles`); here is what the host shows without a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.finding import Evidence, Status
from nearsocket.model.host import Host, Process
from nearsocket.model.text import brief
from nearsocket.model.verdicts.cumem import driver_obstacle, parse_version, version_obstacle
from nearsocket.model.verdicts.engine_env import CUMEM_HOST, lookup, outcome
from nearsocket.model.verdicts.groups import Group, who
from nearsocket.model.verdicts.ranklogs import GroupLog

#: From this driver (its CUDA version) on, the probe of GPUs without P2P does not crash.
SAFE_WITHOUT_P2P = 13000
#: NCCL versions that fail hard, without falling back, where the probe of host memory fails.
FAILS_HARD = ((2, 24), (2, 26, 3))


@dataclass(frozen=True)
class Item:
    """One precondition: pass, fail or unknown, a phrase, the evidence and what to do."""

    status: Status
    text: str
    evidence: Evidence
    remedy: str


def host_items(host: Host, gpus: tuple[str, ...]) -> tuple[Item, ...]:
    """The host's own preconditions: driver, P2P between these GPUs, nodes."""
    return (_driver(host), _p2p(host, gpus), _nodes(host))


def group_items(host: Host, group: Group, found: Optional[GroupLog]) -> tuple[Item, ...]:
    """The host's and the group's preconditions: NCCL's version, SYS_NICE and the user in a container, one rank a process."""
    items = [*host_items(host, group.rank_gpus), _version(group, found), _sys_nice(group), _user(group), _processes(group)]
    return tuple(item for item in items if item is not None)


def shm_reasons(host: Host, group: Group) -> tuple[Item, ...]:
    """Why ring buffers of this group are files, as far as the host shows it without a log: each reason its own."""
    variable, host_path = outcome(group), lookup(group, CUMEM_HOST)
    found: list[Item] = []
    if variable.status is Status.FAIL:
        remedy = "set NCCL_CUMEM_ENABLE=1 for the engine"
        found.append(Item(Status.FAIL, variable.text, Evidence(lookup(group, "NCCL_CUMEM_ENABLE").source, variable.text), remedy))
    if host_path.value == "0" and CUMEM_HOST not in variable.text:
        said = Evidence(host_path.source, f"{CUMEM_HOST}=0")
        found.append(Item(Status.FAIL, f"{CUMEM_HOST}=0 turns the host path off", said, f"remove {CUMEM_HOST}=0"))
    items = (_driver(host), _sys_nice(group), _user(group), _processes(group))
    return (*found, *(item for item in items if item is not None and item.status is Status.FAIL))


def _driver(host: Host) -> Item:
    cuda, version = host.driver.cuda, host.driver.nvml or host.driver.module_loaded
    if cuda is None:
        text = "the driver's CUDA version is not known"
        return Item(Status.UNKNOWN, text, Evidence("nvml", text), "nvidia-smi --query-gpu=driver_version --format=csv")
    shown = f"driver {brief(version or 'of unknown version', 40)} for CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    obstacle = driver_obstacle(cuda)
    if obstacle is not None:
        return Item(Status.FAIL, obstacle.text, Evidence("nvml", shown), obstacle.remedy)
    return Item(Status.PASS, shown, Evidence("nvml", shown), "")


def _p2p(host: Host, gpus: tuple[str, ...]) -> Item:
    cuda = host.driver.cuda
    if cuda is not None and cuda >= SAFE_WITHOUT_P2P:
        text = f"CUDA {cuda // 1000}.{cuda % 1000 // 10}: GPUs without P2P do no harm"
        return Item(Status.PASS, text, Evidence("nvml", text), "")
    words: dict[str, str] = {}
    pairs = [(a, b) for index, a in enumerate(gpus) for b in gpus[index + 1 :]]
    for a, b in pairs:
        one, other = host.gpu(a), host.gpu(b)
        word = (one.p2p.get(b) if one else None) or (other.p2p.get(a) if other else None)
        if word:
            words[f"{a} {b}"] = brief(word, 40)
    bad = {pair: word for pair, word in words.items() if word != "ok"}
    newer = "install a driver for CUDA 13.0 or newer, or bind instead of pinning cuMem"
    if bad:
        pair, word = next(iter(bad.items()))
        text = f"no P2P between {len(bad)} of {len(pairs)} GPU pairs ({pair}: {word}): before CUDA 13.0 the probe may crash"
        return Item(Status.FAIL, text, Evidence("nvml", f"p2p {bad}"), newer)
    if len(words) < len(pairs):
        return Item(
            Status.UNKNOWN, "P2P between the GPUs is not known", Evidence("nvml", "no P2P status"), "nvidia-smi topo -p2p r"
        )
    return Item(Status.PASS, "P2P between all GPUs", Evidence("nvml", f"{len(words)} pairs ok"), "")


def _nodes(host: Host) -> Item:
    odd = [node for node in host.nodes if node.memoryless or node.cpuless]
    if not host.nodes:
        return Item(Status.UNKNOWN, "the nodes could not be read", Evidence("nodes", "no node"), "numactl -H")
    if odd:
        names = f"node {cpulist.render(node.id for node in odd)} without memory or without CPUs"
        remedy = "populate the node or hide it (numa=off hides all; firmware settings), or bind instead of pinning cuMem"
        return Item(Status.FAIL, f"{names}: ranks then disagree on where to allocate", Evidence("nodes", names), remedy)
    count = len(host.nodes)
    text = f"all {count} nodes have memory and CPUs" if count > 1 else "the one node has memory and CPUs"
    return Item(Status.PASS, text, Evidence("nodes", text), "")


def _version(group: Group, found: Optional[GroupLog]) -> Item:
    log = found.log if found else None
    version = min(log.versions, key=parse_version, default=None) if log else None
    if log is None or found is None or version is None:
        text = "NCCL's version is not known (no log)"
        return Item(Status.UNKNOWN, text, Evidence("nccl.logs", text), "")
    line = log.line_of("version")
    said = Evidence(f"{found.source} {line.number}" if line else found.source, f"NCCL version {brief(version, 40)}")
    obstacle = version_obstacle(version, lookup(group, CUMEM_HOST).value == "1")
    if obstacle is not None:
        return Item(Status.FAIL, obstacle.text, said, obstacle.remedy)
    hard = FAILS_HARD[0] <= parse_version(version) < FAILS_HARD[1]
    note = " (fails hard where the probe of host memory fails)" if hard else ""
    return Item(Status.PASS, f"NCCL {version}{note}", said, "")


def _gated(group: Group) -> bool:
    """Whether the group's mbind is behind Docker's seccomp profile. podman's profile lets it through (run in the lab)."""
    if group.container is None:
        return any(process.container for process in group.processes)
    free = group.container.privileged or any(
        "unconfined" in option for option in group.container.security_opt if "seccomp" in option
    )
    return group.container.runtime != "podman" and not free


def _sys_nice(group: Group) -> Optional[Item]:
    if not _gated(group):
        return None
    for process in group.ranks:
        if process.sys_nice is None:
            text = f"{who(process)}: its capabilities could not be read"
            return Item(Status.UNKNOWN, text, Evidence(f"/proc/{process.pid}/status", text), "")
        if not process.sys_nice:
            text = f"{who(process)} has no CAP_SYS_NICE: the container's seccomp profile then refuses mbind"
            remedy = "create the container anew with --cap-add SYS_NICE"
            return Item(Status.FAIL, text, Evidence(f"/proc/{process.pid}/status", "CapEff without CAP_SYS_NICE"), remedy)
    return Item(Status.PASS, "CAP_SYS_NICE", _capability(group.ranks), "") if group.ranks else None


def _capability(ranks: tuple[Process, ...]) -> Evidence:
    return Evidence(f"/proc/{ranks[0].pid}/status", f"CapEff with CAP_SYS_NICE in {len(ranks)} ranks")


def _user(group: Group) -> Optional[Item]:
    # A rootless podman's root has another uid on the host, so the host's uid says nothing there.
    if not _gated(group):
        return None
    other = next((process for process in group.ranks if process.uid > 0), None)
    if other is None:
        return None
    text = f"{who(other)} is not root in its container (uid {other.uid}): the probe of host memory fails"
    return Item(
        Status.FAIL, text, Evidence(f"/proc/{other.pid}/status", f"Uid {other.uid}"), "create the container anew with --user 0"
    )


def _processes(group: Group) -> Optional[Item]:
    for process in group.ranks:
        held = [pci for pci in process.gpu_bytes if pci in process.gpus]
        if len(held) > 1 and len(group.ranks) == 1:
            text = f"{who(process)} holds {len(held)} GPUs: ranks that share a process always use /dev/shm"
            return Item(
                Status.FAIL, text, Evidence("nvml", f"pid {process.pid} on {', '.join(held)}"), "run one process for each GPU"
            )
    return None
