"""How the engines are bound and what they are told: the live policy is judged, never the arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from nearsocket.model.check import check
from nearsocket.model.finding import Evidence, Finding, Status, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.verdicts import proof
from nearsocket.model.verdicts.binding import worst
from nearsocket.model.verdicts.engine_env import CUMEM, CUMEM_HOST, has_option, lookup, outcome
from nearsocket.model.verdicts.groupfacts import GroupFacts, every_group
from nearsocket.model.verdicts.groups import AS_ROOT
from nearsocket.model.verdicts.locality import judge_locality
from nearsocket.model.verdicts.owners import conflicts, owners
from nearsocket.model.verdicts.remedies import ask_nccl, bind, pin
from nearsocket.model.verdicts.transport import logged_value


@check("engine.binding")
def binding(host: Host) -> Iterable[Finding]:
    """Each rank's CPUs and memory are held on the socket of its GPU.

    **Judged**: for every rank, the CPUs that it may run on, its `Mems_allowed` and its task policy, as the kernel enforces
    them now, against the nodes of its GPU's socket. Arguments are not looked at: SGLang strips `--membind` without
    `SYS_NICE` and says nothing.

    **Why**: a rank that may take memory from both sockets draws again at every start. Full page cache on the near node is
    enough to put its buffers on the other socket.

    - **pass**: every rank's CPUs and memory nodes lie within its GPU's socket.
    - **warn**: a rank may run on, or take memory from, the other socket (`prefer`, `interleave` and CPUs alone bind nothing).
    - **fail**: a rank has only far CPUs or only far memory.
    - **unknown**: the GPU's node, the policy or the CPUs could not be read.
    - **not-applicable**: nothing runs, or the host has one socket.

    **Remedy**: a cpuset for the container, `AllowedMemoryNodes` for the unit, `numactl` for a plain process.

    **Source**: /proc/PID/status, first line of /proc/PID/numa_maps; Linux set_mempolicy(2), cpuset(7).
    """
    idle, running = every_group(host)
    return [idle] if idle else list(map(proof.binding, running))


@check("engine.memory-locality")
def memory_locality(host: Host) -> Iterable[Finding]:
    """A rank's own memory (not only NCCL's files) can lie only on its GPU's socket.

    **Judged**: the nodes that the kernel lets each rank take memory from: its task policy within its `Mems_allowed`.
    Pages are not counted: reading all of numa_maps grows with the process and costs seconds on a large one.

    **Why**: pinned staging memory, the host side of the KV cache and tokenized requests cross the socket link when far.

    - **pass**: every rank can take memory only from near nodes.
    - **warn**: a rank spreads its memory over the sockets on purpose (`interleave`).
    - **fail**: a rank can take memory only from far nodes.
    - **unknown**: a rank may use both sockets: where its pages lie was not measured; or its policy could not be read.
    - **not-applicable**: nothing runs, or the host has one socket.

    **Remedy**: bind as for `engine.binding`; `numastat -p PID` counts the pages once.

    **Source**: /proc/PID/status, /proc/PID/numa_maps (first line), numastat(8).
    """
    idle, running = every_group(host)
    return [idle] if idle else list(map(_locality, running))


def _locality(facts: GroupFacts) -> Finding:
    host, group = facts.host, facts.group
    absent = proof.no_other_socket(facts) or proof.no_ranks(facts)
    if absent is not None:
        return absent
    deciding = worst(judge_locality(host, process) for process in group.ranks)
    evidence = (*facts.where, *facts.live)
    if deciding.status is Status.PASS:
        return passed(group.subject, deciding.text, evidence)
    if deciding.status is Status.UNKNOWN:
        return unknown(group.subject, deciding.text, evidence, f"numastat -p {deciding.process.pid}")
    make = failed if deciding.status is Status.FAIL else warned
    return make(group.subject, deciding.text, evidence, bind(host, group))


@check("engine.binding-conflict")
def binding_conflict(host: Host) -> Iterable[Finding]:
    """The binding of a replica has one owner, or owners that agree.

    **Judged**: what the container's cpuset, the unit's `NUMAPolicy` and `AllowedMemoryNodes`, `SGLANG_AUTO_NUMA_BIND`,
    `--numa-node`, `--numa-bind` and `numactl` name, against each other, the GPU's nodes and the live policy.

    **Why**: a cpuset without the GPU's node breaks SGLang's own `--membind`; two owners that disagree leave the binding to
    whichever comes last; a binding that a unit gives to `docker run` binds the client only.

    - **pass**: the owners agree, and what they ask for is in force.
    - **warn**: owners name different nodes that overlap, or one asks for a binding that is not in force.
    - **fail**: owners name disjoint nodes, or one names only nodes away from the GPU.
    - **unknown**: the process is in a container and the runtime could not be asked.
    - **not-applicable**: nothing runs, the host has one socket, or nobody binds (`engine.binding` judges that).

    **Remedy**: keep one owner; `SGLANG_AUTO_NUMA_BIND=0` turns SGLang's own off.

    **Source**: docker inspect, systemctl show, the command lines, /proc/PID/status.
    """
    idle, running = every_group(host)
    return [idle] if idle else list(map(_binding_conflict, running))


def _binding_conflict(facts: GroupFacts) -> Finding:
    host, group, absent = facts.host, facts.group, proof.no_other_socket(facts)
    if absent is not None:
        return absent
    found = owners(group)
    evidence = (*(owner.evidence for owner in found), *facts.live)
    wrong = conflicts(host, group, found)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        make = failed if wrong[0].status is Status.FAIL else warned
        keep = f"# keep one owner of the binding; SGLANG_AUTO_NUMA_BIND=0 turns SGLang's off\n{bind(host, group)}"
        return make(group.subject, wrong[0].text + more, evidence, keep)
    if group.container is None and any(process.container for process in group.processes):
        source = host.source("containers")
        summary = f"runs in a container whose cpuset and environment could not be read ({source.status.value})"
        return unknown(group.subject, summary, evidence, AS_ROOT)
    if not found:
        return not_applicable(group.subject, "no unit, container, variable or option binds it", evidence)
    return passed(group.subject, f"bound by {' and '.join(owner.name for owner in found)}, in agreement", evidence)


@check("engine.cumem-environment")
def cumem_environment(host: Host) -> Iterable[Finding]:
    """The engine's ranks run with NCCL_CUMEM_ENABLE=1, whatever the engine does with the variable.

    **Judged**: the variable as the container, launcher or unit gives it, what this engine's release does with it,
    `NCCL_CUMEM_HOST_ENABLE`, `--enable-symm-mem`, and NCCL's own line where a log is there. A rank's environ is not
    trusted: SGLang's process titles wipe it.

    **Why**: SGLang sets 0 unless told otherwise, and before 0.5.4.post2 it overwrites what it is told. With 0, ring buffers
    are /dev/shm files that land on either socket.

    - **pass**: NCCL says 1, or 1 is given and this release leaves it alone, or `--enable-symm-mem` sets it.
    - **warn**: not set and left to NCCL; or the wish for 1 comes to nothing while a binding holds the buffers near.
    - **fail**: 0, not set under SGLang, overwritten, or `NCCL_CUMEM_HOST_ENABLE=0` beside it, with nothing else to hold buffers.
    - **unknown**: the environment or the engine's release could not be read.
    - **not-applicable**: nothing runs, no buffers in host memory are needed, or a binding holds them and cuMem was not asked for.

    **Remedy**: `-e NCCL_CUMEM_ENABLE=1 --cap-add SYS_NICE`, an engine that honours it, or a binding.

    **Source**: SGLang releases 0.4.3 to 0.5.23 and vLLM 0.33.0, as read; NCCL src/transport/shm.cc.
    """
    idle, running = every_group(host)
    return [idle] if idle else list(map(_cumem_environment, running))


def _cumem_environment(facts: GroupFacts) -> Finding:
    group, holder = facts.group, facts.holder
    setting, host_path = lookup(group, CUMEM), lookup(group, CUMEM_HOST)
    shown = f"{CUMEM}={setting.value}" if setting.value is not None else f"{CUMEM} {'not set' if setting.known else 'not readable'}"
    evidence = [Evidence(setting.source, shown)]
    if host_path.value is not None:
        evidence.append(Evidence(host_path.source, f"{CUMEM_HOST}={host_path.value}"))
    if has_option(group, "--enable-symm-mem"):
        evidence.append(Evidence("the command line", "--enable-symm-mem"))
    if facts.free is not None:
        return dataclasses.replace(facts.free, evidence=(*evidence, *facts.free.evidence))
    logged = logged_value(facts.log, CUMEM)
    found = outcome(group, logged.text.rpartition("=")[2] if logged else None)
    evidence += [logged] if logged else []
    if found.status is Status.PASS:
        return passed(group.subject, found.text, evidence)
    if holder is not None and not found.asked:
        return not_applicable(group.subject, f"{holder} holds the buffers near; cuMem is not asked for", (*evidence, *facts.live))
    if found.status is Status.UNKNOWN:
        return unknown(group.subject, found.text, evidence, ask_nccl(group))
    if holder is not None or found.status is Status.WARN:
        more = f"; {holder} holds the buffers near" if holder else ""
        return warned(group.subject, found.text + more, evidence, pin(group))
    return failed(group.subject, found.text, evidence, pin(group))
