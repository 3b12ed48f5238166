"""Whether cuMem holds NCCL's host buffers, and whether it could."""

from __future__ import annotations

from collections.abc import Iterable

from nearsocket.model.check import check
from nearsocket.model.finding import Finding, Status, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.verdicts import proof
from nearsocket.model.verdicts.engine_env import outcome
from nearsocket.model.verdicts.groupfacts import GroupFacts, every_group
from nearsocket.model.verdicts.groups import groups, hidden_processes, nothing_runs
from nearsocket.model.verdicts.preconditions import Item, group_items, host_items
from nearsocket.model.verdicts.remedies import ask_nccl


@check("nccl.cumem-in-force")
def cumem(host: Host) -> Iterable[Finding]:
    """NCCL's host buffers are cuMem allocations, which the driver places strictly near.

    **Judged**: NCCL's log of every rank; without one, whether ring files are mapped, and what the host shows of the reason:
    the variable, `NCCL_CUMEM_HOST_ENABLE`, the driver, `CAP_SYS_NICE`, the user, ranks that share a process.

    **Why**: `NCCL_CUMEM_ENABLE=1` alone proves nothing: NCCL falls back to /dev/shm with one line at level INFO.

    - **pass**: the logs of all ranks show host buffers in cuMem and none in /dev/shm.
    - **fail**: the log shows files, a fallback or a reason against cuMem; or ring files are mapped.
    - **unknown**: no log, no file; or not every rank's log was found; or the processes could not be read.
    - **not-applicable**: nothing runs, every transport is P2P or NVLink, no buffers in host memory are needed (one rank on
      one GPU, NVLink between all GPUs), or a bound process, cpuset or mount holds all buffers near.
    - **warn** does not occur: cuMem is in force or it is not.

    **Remedy**: remove the reason named, or bind the engine.

    **Source**: NCCL's log; NCCL src/transport/shm.cc, src/misc/cudawrap.cc.
    """
    idle, running = every_group(host)
    return [idle] if idle else [*map(proof.cumem, running), *hidden_processes(host)]


@check("nccl.cumem-preconditions")
def preconditions(host: Host) -> Iterable[Finding]:
    """cuMem can be pinned here: versions, P2P, nodes and the container's rights allow it.

    **Judged**: the driver's CUDA version (12.6 or newer), NCCL's version (2.24 or newer), P2P between the GPUs where the
    driver is older than CUDA 13.0, nodes without memory or CPUs, `CAP_SYS_NICE` and the user inside a Docker container,
    one rank a process.

    **Why**: without them the pin comes to nothing; and without P2P on an old driver, or with an empty node, it can crash the
    engine or make ranks disagree.

    - **pass**: all hold, or NCCL's log shows cuMem in force.
    - **warn**: one does not hold, and cuMem is not asked for.
    - **fail**: one does not hold although cuMem is asked for.
    - **unknown**: nothing fails, but one could not be read (NCCL's version is known from a log only).
    - **not-applicable**: no GPU here, no buffers in host memory needed, or a binding holds them and cuMem is not asked for.

    **Remedy**: named with each; or bind instead.

    **Source**: NVML, /proc/PID/status, NCCL's log; NCCL src/misc/cudawrap.cc, src/include/alloc.h.
    """
    running = groups(host)
    if running:
        return [_preconditions(GroupFacts(host, group)) for group in running]
    if not host.gpus:
        return [nothing_runs(host) or unknown(host.name, "no GPU is visible", (), "nvidia-smi -L")]
    items = host_items(host, tuple(gpu.pci for gpu in host.gpus))
    return [_judge_items(host.name, items, False, "; nothing runs, so a container's part is not judged", "")]


def _preconditions(facts: GroupFacts) -> Finding:
    group, told = facts.group, facts.in_force
    if told is not None and told.status is Status.PASS:
        return passed(facts.subject, f"met: {told.summary}", told.evidence)
    if facts.free is not None:
        return facts.free
    asked = outcome(group).asked
    if facts.holder is not None and not asked:
        return not_applicable(facts.subject, f"{facts.holder} holds the buffers near; cuMem is not asked for", facts.live)
    return _judge_items(facts.subject, group_items(facts.host, group, facts.log), asked, "", ask_nccl(group))


def _judge_items(subject: str, items: tuple[Item, ...], asked: bool, note: str, ask: str) -> Finding:
    evidence = [item.evidence for item in items]
    bad = [item for item in items if item.status is Status.FAIL]
    if bad:
        make = failed if asked else warned
        word = "not met" if asked else "not met, should cuMem be pinned"
        remedy = "\n".join(dict.fromkeys(item.remedy for item in bad))
        return make(subject, f"{word}: {'; '.join(item.text for item in bad)}{note}", evidence, remedy)
    dark = [item for item in items if item.status is Status.UNKNOWN]
    if dark:
        remedy = "\n".join(dict.fromkeys(item.remedy for item in dark if item.remedy)) or ask or "nvidia-smi"
        return unknown(subject, f"not all is known: {'; '.join(item.text for item in dark)}{note}", evidence, remedy)
    return passed(subject, f"met: {', '.join(item.text for item in items)}{note}", evidence)
