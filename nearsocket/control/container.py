"""The container of a replica: its names, the words that start it, its environment. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from nearsocket.model import cpulist, nccldebug, programs, systemd
from nearsocket.model.errors import NearsocketError
from nearsocket.model.host import Engine
from nearsocket.model.plan.layers import NEEDS_SYS_NICE
from nearsocket.model.plan.make import slug
from nearsocket.model.plan.values import Gate, ReplicaPlan
from nearsocket.model.settings import Layer, Runtime
from nearsocket.model.text import one_line

#: NCCL's log of every start: what proves where its buffers lie.
NCCL_LOG: Mapping[str, str] = nccldebug.variables(programs.LOG_TARGET)
#: Options of both engines by which the number of ranks is told; where the user's words have one, the plan adds none.
TENSOR_RANKS = ("--tp", "--tp-size", "--tensor-parallel-size", "-tp")
RANKS = (
    *TENSOR_RANKS,
    *("--dp", "--dp-size", "--data-parallel-size", "-dp", "--pp", "--pp-size", "--pipeline-parallel-size", "-pp"),
    *("--prefill-context-parallel-size", "-pcp"),
)


def unit_base(replica: ReplicaPlan) -> str:
    """The name of the container, and of its unit without `.service`."""
    return f"nearsocket-{replica.settings.engine.value}-{replica.name}"


def slice_name(replica: ReplicaPlan) -> str:
    """The replica's slice, directly under nearsocket.slice."""
    return f"nearsocket-{slug(replica.name)}.slice"


def runtime_words(replica: ReplicaPlan) -> tuple[str, ...]:
    """The runtime's program."""
    return (f"/usr/bin/{replica.settings.runtime.value}",)


def environment(replica: ReplicaPlan) -> dict[str, str]:
    """The engine's environment, without secrets: NCCL's log, the settings' own, what the plan decided."""
    settings = replica.settings
    decided = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if any(state.used for state in replica.layers):
        decided["NCCL_CUMEM_ENABLE"] = "1" if replica.cumem else "0"
        if settings.engine is Engine.SGLANG:
            decided["SGLANG_AUTO_NUMA_BIND"] = "1" if replica.ranks else "0"
    if settings.image.patch:
        decided["SGLANG_PCIE_IPC_CHUNKED"] = "1"
    return {**NCCL_LOG, **settings.environment, **settings.nccl, **decided}


def gpu_names(replica: ReplicaPlan) -> tuple[str, ...]:
    """The GPUs as the gate names them: UUIDs, or NVML's indices. Raises NearsocketError where the snapshot has neither."""
    names = []
    for gpu in replica.gpus:
        by_index = replica.gate is Gate.CDI_INDEX or gpu.uuid is None
        name = (str(gpu.index) if gpu.index is not None else None) if by_index else gpu.uuid
        if name is None:
            raise NearsocketError(
                f"GPU {gpu.pci}: expected NVML's index or UUID in the snapshot, found neither",
                "audit the host with its driver loaded",
            )
        names.append(name)
    return tuple(names)


def bound(replica: ReplicaPlan) -> dict[str, str]:
    """The variables that bind, on the nodes of the plan."""
    ranks = [str(node) for node in replica.ranks]
    engine = ["--numa-node", *ranks] if replica.settings.engine is Engine.SGLANG else ["--numa-bind", "--numa-bind-nodes", *ranks]
    return {
        programs.RUN_BINDING: systemd.split(run_binding(replica)),
        programs.NUMACTL: systemd.split(numactl(replica)),
        programs.ENGINE_BINDING: systemd.split(engine) if ranks else "",
    }


def run_binding(replica: ReplicaPlan) -> list[str]:
    """The runtime's options that bind, and its /dev/shm."""
    run = [] if replica.settings.binding == frozenset() or not replica.cpus else [f"--cpuset-cpus={cpulist.render(replica.cpus)}"]
    if replica.uses(Layer.CPUSET):
        run.append(f"--cpuset-mems={cpulist.render(replica.memory_nodes)}")
    run.append(private_shm(replica) if replica.shm is None else f"--mount=type=bind,source={replica.shm.point},target=/dev/shm")
    return run


def numactl(replica: ReplicaPlan) -> list[str]:
    """What stands before the engine's command inside the container."""
    return ["numactl", f"--membind={cpulist.render(replica.memory_nodes)}"] if replica.uses(Layer.NUMACTL) else []


def unbound(replica: ReplicaPlan) -> dict[str, str]:
    """The same variables for a start on other nodes than the plan's: nothing binds, /dev/shm has its size all the same."""
    return {programs.RUN_BINDING: private_shm(replica), programs.NUMACTL: "", programs.ENGINE_BINDING: ""}


def private_shm(replica: ReplicaPlan) -> str:
    """The option for a /dev/shm of the container's own, of the replica's size."""
    return f"--shm-size={replica.shm_bytes}"


def exec_start(replica: ReplicaPlan) -> str:
    """The value of ExecStart=, one option a line. `$NAME` and `${NAME}` are systemd's, everything of the user's is escaped."""
    settings = replica.settings
    raw_gpus = f"--gpus=${{{programs.GPUS}}}" if replica.gate is Gate.GPUS else f"${programs.GPUS}"
    before = [f"--name={unit_base(replica)}", "--rm", "--init", "--pull=never", "--log-driver=none"]
    before += [f"--label=nearsocket.replica={replica.name}", "--network=host", f"--cgroup-parent={slice_name(replica)}"]
    # NOTIFY_SOCKET is for the proof; podman would take it and name another main process.
    before += ["--sdnotify=ignore"] if settings.runtime is Runtime.PODMAN else []
    after = [*rights(replica), f"--env-file={programs.CURRENT}/env/{replica.name}.env"]
    after += [f"--env-file={programs.secrets_env(replica.name)}"] if settings.secrets else []
    after += [*_model_mount(replica), *user_mounts(replica)]
    log = f"--mount=type=bind,source=${{{programs.START_DIR}}},target={programs.LOG_TARGET}"
    lines = [
        " ".join([*map(systemd.word, runtime_words(replica)), "run"]),
        *map(systemd.word, before),
        raw_gpus,
        f"${programs.RUN_BINDING}",
        *map(systemd.word, after),
        log,
        "--entrypoint=",
        systemd.word(settings.image.reference, "image"),
        f"${programs.NUMACTL} " + " ".join(systemd.word(text, "command") for text in command(replica)),
        f"${programs.ENGINE_BINDING}",
        *(systemd.word(text, "arguments") for text in settings.arguments),
    ]
    return " \\\n    ".join(lines)


def rights(replica: ReplicaPlan) -> list[str]:
    """The capability and the limit that the layers and pinned memory need."""
    memlock = -1 if replica.settings.limits.memlock_bytes is None else replica.settings.limits.memlock_bytes
    capability = ["--cap-add=SYS_NICE"] if any(replica.uses(layer) for layer in NEEDS_SYS_NICE) else []
    return [*capability, f"--ulimit=memlock={memlock}:{memlock}"]


def _model_mount(replica: ReplicaPlan) -> list[str]:
    """The model at its own path, unless the settings mount something there: runtimes refuse two mounts at one place."""
    model = replica.settings.model
    taken = {posixpath.normpath(text.split(":")[1]) for text in replica.settings.mounts if ":" in text}
    return [] if posixpath.normpath(model) in taken else [_mount(model, model, True)]


def user_mounts(replica: ReplicaPlan) -> list[str]:
    """The settings' own mounts."""
    return [_user_mount(text) for text in replica.settings.mounts]


def command(replica: ReplicaPlan) -> list[str]:
    """The engine's program with model, address and number of ranks; the settings' own command where they have one."""
    settings = replica.settings
    if settings.command:
        return list(settings.command)
    ranks = None if tells_ranks(settings.arguments) else str(len(replica.gpus))
    where = [f"--host={settings.listen}", f"--port={replica.port}"]
    if settings.engine is Engine.SGLANG:
        words = ["python3", "-m", "sglang.launch_server", f"--model-path={settings.model}", *where]
        return words + ([f"--tp-size={ranks}"] if ranks else [])
    return ["vllm", "serve", settings.model, *where] + ([f"--tensor-parallel-size={ranks}"] if ranks else [])


def tells_ranks(words: Iterable[str]) -> bool:
    """Whether these words of an engine say how many ranks it has."""
    return any(word.partition("=")[0] in RANKS for word in words)


def _mount(source: str, target: str, read_only: bool) -> str:
    for path in (source, target):
        if not path.startswith("/") or "," in path or '"' in path:
            raise NearsocketError(
                f"expected an absolute path without commas and double quotes, found {one_line(path, 80)!r}",
                "the runtime reads the words of a mount as CSV: mount it under another name",
            )
    return f"--mount=type=bind,source={source},target={target}" + (",readonly" if read_only else "")


def _user_mount(text: str) -> str:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if mode not in ("", "ro", "rw"):
        raise NearsocketError(f"mounts: expected SOURCE:TARGET or SOURCE:TARGET:ro, found {one_line(text, 80)!r}")
    return _mount(source, target, mode == "ro")
