"""The engines of a host as replicas of a fleet file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nearsocket.control.importing import defined, parts, words
from nearsocket.control.importing.values import Found, Import, Left
from nearsocket.control.importing.words import Words
from nearsocket.model import holders, places
from nearsocket.model.containment import same_container, unit_of
from nearsocket.model.host import Container, Engine, Host, Replica
from nearsocket.model.parsers import compose, take
from nearsocket.model.read import titles
from nearsocket.model.settings import Runtime
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import refused, why

#: Docker's own size of /dev/shm, which nobody asked for.
_USUAL_SHM = 64 << 20
#: The home of a container's root, under which Hugging Face keeps what it loads unless it is told otherwise.
_HOME = "/root"


class _Lost(Exception):
    """An engine that cannot be a replica: what stands in the way, and what to do."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what)
        self.what, self.reason = what, reason


def read_engines(host: Host) -> Import:
    """Every engine that runs on the host, in the order of their containers, those of nearsocket's own left out."""
    found: list[Found] = []
    left: list[Left] = []
    lost = 0
    for box in host.containers:
        if titles.engine(_started(box)) is None or defined.ours(box.name):
            continue
        name = _name(box, [one.name for one in found])
        try:
            made, missed = _engine(host, box, name)
            found.append(made)
            left += missed
        except _Lost as error:
            lost += 1
            left.append(Left(name, error.what, error.reason))
    for replica in host.replicas:
        inside = next((box for box in host.containers if same_container(replica.container, box.id)), None)
        if replica.engine and (inside is None or not (defined.ours(inside.name) or titles.engine(_started(inside)))):
            lost += 1
            left.append(_elsewhere(replica) if inside is None else _hidden(inside))
    if refused(host, "containers"):
        left.append(Left(host.name, "containers", why(host, "containers")))
    left += defined.at_rest(host)
    return Import(host.name, tuple(found), tuple(_clean(entry) for entry in left), lost)


def _started(box: Container) -> Sequence[str]:
    """The command without an init in front, which a runtime puts there (`--init`) or an image brings."""
    command = list(box.command)
    while command and command[0].rpartition("/")[2] in ("tini", "dumb-init", "catatonit", "docker-init", "init"):
        at = command.index("--") + 1 if "--" in command else 1
        command = command[at:]
    return command


def _engine(host: Host, box: Container, name: str) -> tuple[Found, list[Left]]:
    gpus = _gpus(host, box)
    said = words.parse(_started(box), len(gpus))
    image = parts.reference(host, box)
    if said is None or not gpus:
        raise _Lost("its GPUs", "no process of it holds one and none was given to it by name: import it while it serves")
    if image is None:
        raise _Lost(f"image {box.image}", "it has no digest that it can be pulled by: push it to a registry, and run it from there")
    folders, mounts, left = parts.mounts(host, box, name)
    plain, secrets, missed = parts.environment(host, box, name)
    left += [*missed, *parts.options(host, box, name), *defined.depends(host, box, name), *_unsaid(name, said)]
    if said.engine is Engine.VLLM and "--api-key" in said.hidden:
        secrets["VLLM_API_KEY"] = f"{parts.SECRETS}/{name}/VLLM_API_KEY"
        left.append(Left(name, "the value of --api-key", f"a secret: write it to {secrets['VLLM_API_KEY']} on the host"))
    model = _model(said, folders, plain)
    port, listen, command, noted = _address(host, box, name, said)
    plans_own = command is None and said.standard and said.model == model
    own = {f"{model}:{model}", f"{model}:{model}:ro"} if plans_own else set()
    made = Found(
        name=name,
        container=box.name or box.id[:12],
        origin=_origin(host, box),
        engine=said.engine,
        runtime=Runtime(box.runtime),
        image=image,
        gpus=gpus,
        model=model,
        port=port,
        listen=listen,
        command=() if plans_own else command or said.whole,
        arguments=said.rest if plans_own else (),
        environment={key: value for key, value in plain.items() if not key.startswith("NCCL_")},
        nccl={key: value for key, value in plain.items() if key.startswith("NCCL_")},
        secrets=secrets,
        mounts=tuple(mount for mount in mounts if mount not in own),
        shm_bytes=box.shm_size_bytes if box.ipc_mode != "host" and (box.shm_size_bytes or 0) > _USUAL_SHM else None,
        memlock_bytes=parts.memlock(host, box),
    )
    return made, [*left, *noted]


def _gpus(host: Host, box: Container) -> tuple[str, ...]:
    """The addresses of its GPUs: those that its processes hold, else those that it was given."""
    held = {pci for process in host.processes if same_container(process.container, box.id) for pci in process.gpus}
    if held:
        return tuple(sorted(held))
    given = holders.given(host, box)
    if "all" in given:
        return tuple(sorted(gpu.pci for gpu in host.gpus))
    return tuple(sorted(gpu.pci for gpu in host.gpus if {gpu.uuid, str(gpu.index)} & given))


def _model(said: Words, folders: dict[str, str], environment: dict[str, str]) -> str:
    """The folder on the host that the model is read from. Raises _Lost."""
    if said.model is None:
        raise _Lost("its model", "its command line names none that can be told from options' values: name it first, or by --model")
    inside = said.model
    if not inside.startswith("/"):  # a name of a hub: what is read lies in the cache
        inside = environment.get("HF_HUB_CACHE") or environment.get("HF_HOME") or f"{_HOME}/.cache/huggingface"
    folder = parts.on_host(inside, folders)
    if folder is None:
        raise _Lost(
            f"model {said.model}",
            f"{inside} is in the container alone: mount a folder of the host there, so that the weights outlast the container",
        )
    return folder


def _address(host: Host, box: Container, name: str, said: Words) -> tuple[int, str, tuple[str, ...] | None, list[Left]]:
    """Port, address, the command where it has to change for them, and what changed."""
    listen = said.listen or "127.0.0.1"
    if take.word(parts.raw(host, box).get("network")) == "host":
        if said.listen is None:
            return said.port, listen, said.whole, [Left(name, "the name it listens on", "an address is needed: see `listen`")]
        return said.port, listen, None, []
    found = parts.published(host, box, said.port)
    if found is None:
        note = Left(name, f"port {said.port}", "it was not published; in the host's network it listens on 127.0.0.1")
        return said.port, "127.0.0.1", None if said.standard else words.with_listen(said.whole, "127.0.0.1"), [note]
    port, listen = found
    changed = words.with_port(words.with_listen(said.whole, listen), port)
    note = Left(name, f"port {said.port} in a network of its own", f"it listens on {listen}:{port} itself, where it was published")
    return port, listen, None if said.standard else changed, [note]


def _unsaid(name: str, said: Words) -> list[Left]:
    left = [Left(name, text, "the plan binds") for text in said.bound]
    for option in said.hidden:
        if not (said.engine is Engine.VLLM and option == "--api-key"):
            reason = "its value is a secret, which a snapshot does not hold, and this engine takes it from no variable"
            left.append(Left(name, option, f"{reason}: WITHOUT IT ANYBODY MAY ASK" if "key" in option else reason))
    return left


def _origin(host: Host, box: Container) -> str:
    unit = unit_of(box, host.units)
    labels = parts.compose(host, box)
    files, service = compose.label(labels, "project.config_files"), compose.label(labels, "service")
    behind = f", service {service} of {files or 'a compose file'}" if service else f", run by {unit.id}" if unit else ""
    return f"{box.runtime} container {box.name or box.id[:12]}{behind}"


def _elsewhere(replica: Replica) -> Left:
    where = f"container {replica.container[:12]} of another runtime" if replica.container else "no container"
    by = f", run by {replica.unit}" if replica.unit else ""
    return Left(replica.name, "the engine", f"it runs in {where}{by}; nearsocket runs engines in containers of Docker or podman")


def _hidden(box: Container) -> Left:
    """An engine that a shell or a script starts: what it is started with stands in no list of words."""
    begins = " ".join(box.command)[:80] or "nothing that is told"
    reason = "the engine is started inside of that, so its own words are not known: give them as the container's command"
    return Left(box.name or box.id[:12], f"the engine behind the command {begins!r}", reason)


def _name(box: Container, taken: Sequence[str]) -> str:
    """A replica's name after the container's."""
    plain = re.sub(r"[^a-z0-9]+", "-", (box.name or box.id[:12]).lower()).strip("-")[:28].strip("-") or "engine"
    plain = "engine" if places.reserved(plain) else plain
    return next(name for name in (plain, *(f"{plain}-{n}" for n in range(2, 100))) if name not in taken)


def _clean(entry: Left) -> Left:
    return Left(one_line(entry.subject, 80), one_line(entry.what, 200), one_line(entry.reason, 300))
