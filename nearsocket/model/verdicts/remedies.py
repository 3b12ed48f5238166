"""Commands to paste: how to bind a replica near its GPUs, how to pin cuMem, how to make NCCL say what it does."""

from __future__ import annotations

from nearsocket.model import cpulist, nccldebug, near
from nearsocket.model.host import Engine, Host
from nearsocket.model.verdicts.binding import memory_nodes, near_cpus
from nearsocket.model.verdicts.groups import Group, quoted

#: One log a process, named after host and process.
_TO_FILE = f"{nccldebug.WORDS} {nccldebug.FILE}=/tmp/nccl.%h.%p"

_ROOM = "# first see that the near node has room for what the engine pins: numastat -m"
_LOST = "# started by a unit or script: add the two options to its run line instead, or they go with the container"


def bind(host: Host, group: Group) -> str:
    """How to bind the group by force: its container's cpuset, its unit, numactl; per rank where its GPUs are on two sockets."""
    per_rank = [near.of_process(host, process) for process in group.ranks]
    own = frozenset(node for nodes in per_rank for node in nodes or ())
    if not own or None in per_rank:
        return "name the GPUs' nodes: nearsocket audit --near NODES (cat /sys/bus/pci/devices/ADDRESS/numa_node)"
    if len({nodes for nodes in per_rank if nodes}) > 1 or len({host.socket_of(node) for node in own}) > 1:
        return _bind_each_rank(group)
    nodes, cpus = cpulist.render(own & memory_nodes(host)), cpulist.render(near_cpus(host, own))
    if not nodes:
        empty = (
            f"node {cpulist.render(own)}, the GPUs' own, has no memory: populate its slots, or move the GPUs to the other socket"
        )
        return f"# nothing can be bound near: {empty}\nnumactl -H"
    if group.container is not None:
        name, cpuset = group.container_word, f"--cpuset-cpus={cpus} --cpuset-mems={nodes}"
        return f"{_ROOM}\n{group.runtime} update {cpuset} {name} && {group.runtime} restart {name}\n{_LOST}"
    if group.unit is not None:
        unit = quoted(group.unit.id)
        return f"{_ROOM}\nsystemctl set-property {unit} AllowedMemoryNodes={nodes} AllowedCPUs={cpus}\nsystemctl restart {unit}"
    return f"{_ROOM}\nnumactl --cpunodebind={nodes} --membind={nodes} COMMAND  # in place of COMMAND, at the next start"


def _bind_each_rank(group: Group) -> str:
    """A cpuset cannot serve ranks on two sockets: each binds itself, or cuMem places the buffers."""
    if group.engine is Engine.VLLM:
        own = "# the GPUs are on two sockets: let each rank bind itself, start vLLM with --numa-bind"
    elif group.engine is Engine.SGLANG:
        own = "# the GPUs are on two sockets: let each rank bind itself, SGLang with SGLANG_AUTO_NUMA_BIND=1 (numactl in the image)"
    else:
        own = "# the GPUs are on two sockets: start each rank under numactl --cpunodebind=NODE --membind=NODE of its own GPU"
    cap = " and --cap-add SYS_NICE" if group.container is not None else ""
    return f"{own}{cap}\n{pin(group)}"


def pin(group: Group) -> str:
    """How to pin cuMem, which makes NCCL allocate strictly near."""
    if group.container is not None:
        options = "-e NCCL_CUMEM_ENABLE=1 -e NCCL_CUMEM_HOST_ENABLE=1 --cap-add SYS_NICE"
        return f"# create the container anew with cuMem pinned: {group.runtime} run {options} …"
    if group.unit is not None:
        unit = quoted(group.unit.id)
        return (
            f"systemctl edit {unit}  # [Service] Environment=NCCL_CUMEM_ENABLE=1 NCCL_CUMEM_HOST_ENABLE=1\nsystemctl restart {unit}"
        )
    return "NCCL_CUMEM_ENABLE=1 NCCL_CUMEM_HOST_ENABLE=1 COMMAND  # in place of COMMAND, at the next start"


def ask_nccl(group: Group) -> str:
    """How to get NCCL's own word: its log, at the next start."""
    if group.container is not None:
        options = " ".join(f"-e {setting}" for setting in _TO_FILE.split())
        return f"# start once with NCCL's log on, send a request, audit again: {group.runtime} run {options} …"
    return f"{_TO_FILE} COMMAND  # start once so, send a request, audit again"


def enlarge_shm(group: Group, pid: int) -> str:
    """How to give a rank more /dev/shm: now by a remount, for good by the container's or the host's setting."""
    if group.container is None or group.container.ipc_mode == "host":
        return "mount -o remount,size=50% /dev/shm  # for good: the size in /etc/fstab"
    now = f"nsenter -t {pid} -m mount -o remount,size=8g /dev/shm  # holds until the container is created anew"
    return f"{now}\n# for good: {group.runtime} run --shm-size=8g …"
