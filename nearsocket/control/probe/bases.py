"""What a probe's starts share on one host: a replica's GPUs, image, environment and binding, or bare ranks on the host. Pure."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nearsocket.control import container
from nearsocket.model import cpulist, near, programs
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.host import Gpu, Host
from nearsocket.model.plan.make import plan
from nearsocket.model.plan.values import ReplicaPlan
from nearsocket.model.probe import sizes
from nearsocket.model.probe.order import Backend, Place
from nearsocket.model.probe.planning import Base, Binding
from nearsocket.model.probe.starts import FOLDER, NAME
from nearsocket.model.settings import Settings
from nearsocket.model.start import gpu_options
from nearsocket.model.text import one_line

#: Two ranks on one GPU (NCCL 2.30.3): NCCL refuses without the first, and waits for ever where blocks of one rank fill the GPU.
SHARED_GPU: Mapping[str, str] = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}
#: How many ranks a group has.
LEAST_RANKS, MOST_RANKS = 2, 16


@dataclass(frozen=True)
class Wish:
    """What the command line says of the ranks. `python`: run bare with that interpreter of the host (None: in the replica's image);
    `gpus`: indices in the order of PCI addresses (None: all, or the replica's); `each`: ranks on each GPU.
    """

    backend: Backend = Backend.NCCL
    python: str | None = None
    gpus: tuple[int, ...] | None = None
    each: int = 1
    sizes: tuple[int, ...] = sizes.DEFAULT
    rounds: int = 5
    budget_s: float = 0.2
    limit_s: float = 300.0
    environment: Mapping[str, str] = field(default_factory=dict)
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """One group to measure: its name in findings, its image (`bare` without one), what its starts share."""

    name: str
    image: str
    base: Base

    @property
    def gpus(self) -> tuple[str, ...]:
        """The PCI addresses in rank order, each rank's."""
        return tuple(place.pci or f"device {place.device}" for place in self.base.places)


def subjects(host: Host, settings: Settings | None, wish: Wish) -> tuple[Subject, ...]:
    """What is to be measured on that host. Raises NearsocketError, UsageError where nothing can be."""
    if wish.python is not None:
        return (bare(host, wish),)
    if settings is None or not settings.replicas:
        raise UsageError(
            f"{one_line(host.name, 100)}: expected what is served there (an inventory with replicas), found none",
            "or run without a container: --python PATH, a Python on the host that has torch",
        )
    made = plan(host, settings)
    if made.refused:
        first = made.refusals[0]
        raise NearsocketError(f"{first.subject}: {first.reason}", first.hint)
    chosen = [one for one in made.replicas if not wish.replicas or one.name in wish.replicas]
    missing = set(wish.replicas) - {one.name for one in chosen}
    if missing:
        raise UsageError(f"--replica: expected one of {', '.join(r.name for r in made.replicas)}, found {min(missing)!r}")
    return tuple(_with_shm(of_replica(host, one, wish), one) for one in chosen)


def _with_shm(subject: Subject, replica: ReplicaPlan) -> Subject:
    """The same with a /dev/shm of its own, bound as the replica's: that one's is only there while its unit is up."""
    if replica.shm is None:
        return subject
    words = tuple(
        word.replace(f"source={replica.shm.point},", f"source={FOLDER}/shm,") for word in subject.base.argv[Binding.CONFIGURED]
    )
    argv = {**subject.base.argv, Binding.CONFIGURED: words}
    bound = f"mode=1777,size={replica.shm.size_bytes},mpol=bind:{cpulist.render(replica.shm.nodes)}"
    return dataclasses.replace(subject, base=dataclasses.replace(subject.base, argv=argv, shm=bound))


def bare(host: Host, wish: Wish) -> Subject:
    """Ranks that the host's own Python runs, one on each GPU or `each` of them; on CPUs where there is no GPU and gloo is meant."""
    gpus = sorted(near.usable(host), key=lambda gpu: gpu.pci)
    if wish.backend is Backend.GLOO or (wish.backend is Backend.STANDIN and not gpus):
        known = tuple(sorted(host.near or ()))
        places = [Place(number, None, known[0] if known else None, known) for number in range(max(2, wish.each))]
    else:
        indices = range(len(gpus)) if wish.gpus is None else wish.gpus
        if any(index >= len(gpus) for index in indices):
            raise UsageError(f"--gpus: expected indices below {len(gpus)}, found {max(indices)}")
        places = [_place(host, gpus[index], index) for index in indices for _ in range(wish.each)]
    _enough(host, places)
    shared = SHARED_GPU if wish.each > 1 and wish.backend is Backend.NCCL else {}
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **shared, **wish.environment}
    name = f"{len(places)} bare ranks"
    return Subject(name, "bare", _base(wish, places, environment, _far(host, places), python=wish.python or ""))


def of_replica(host: Host, replica: ReplicaPlan, wish: Wish) -> Subject:
    """Ranks in the replica's image, with its environment, its GPUs and whatever binds it."""
    places = []
    for index, place in enumerate(replica.gpus):
        gpu = host.gpu(place.pci)
        known = tuple(sorted((near.of_device(host, gpu) if gpu else None) or replica.near))
        bind = (replica.ranks[index],) if replica.ranks else ()
        places += [Place(index, place.pci, place.node, known, bind)] * wish.each
    _enough(host, places)
    far = _far(host, places)
    shared = SHARED_GPU if wish.each > 1 and wish.backend is Backend.NCCL else {}
    environment = {**container.environment(replica), **shared, **wish.environment}
    base = _base(
        wish,
        places,
        environment,
        far,
        argv={
            Binding.CONFIGURED: argv(replica, container.run_binding(replica), container.numactl(replica)),
            Binding.NAIVE: argv(replica, [container.private_shm(replica)], []),
            Binding.NEAR: argv(replica, [f"--cpuset-mems={cpulist.render(replica.near)}", container.private_shm(replica)], []),
            Binding.FAR: argv(replica, [f"--cpuset-mems={cpulist.render(far)}", container.private_shm(replica)], []),
        },
        runtime=container.runtime_words(replica)[0],
        container=f"nearsocket-probe-{secrets.token_hex(4)}",
    )
    return Subject(f"replica {replica.name}", replica.settings.image.reference, base)


def driver(host: Host) -> str:
    """The version of the driver that figures depend on."""
    return host.driver.module_loaded or host.driver.nvml or "none"


def argv(replica: ReplicaPlan, binding: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """The words that run Python in the replica's image as its unit runs the engine, but for the model and the secrets."""
    return (
        *container.runtime_words(replica),
        *("run", "-i", f"--name={NAME}", "--rm", "--init", "--pull=never", "--log-driver=none"),
        *(f"--label=nearsocket.probe={replica.name}", "--network=host", f"--cgroup-parent={programs.PROBE_SLICE}"),
        *gpu_options(replica.gate, container.gpu_names(replica)),
        *binding,
        *container.rights(replica),
        f"--env-file={FOLDER}/env",
        *container.user_mounts(replica),
        f"--mount=type=bind,source={FOLDER}/log,target={programs.LOG_TARGET}",
        "--entrypoint=",
        replica.settings.image.reference,
        *before,
        "python3",
    )


def _base(
    wish: Wish,
    places: Sequence[Place],
    environment: Mapping[str, str],
    far: tuple[int, ...],
    argv: Mapping[Binding, tuple[str, ...]] | None = None,
    python: str = "",
    runtime: str = "",
    container: str = "",
) -> Base:
    return Base(
        wish.backend,
        tuple(places),
        wish.sizes,
        wish.rounds,
        wish.budget_s,
        wish.limit_s,
        environment,
        far,
        argv or {},
        python,
        runtime,
        container,
    )


def _place(host: Host, gpu: Gpu, index: int) -> Place:
    return Place(index, gpu.pci, gpu.node, tuple(sorted(near.of_device(host, gpu) or ())))


def _far(host: Host, places: Sequence[Place]) -> tuple[int, ...]:
    """The nodes with memory that are near none of the GPUs; none where a GPU's own are not known."""
    if not places or not all(place.near for place in places):
        return ()
    around = {node for place in places for node in place.near}
    return tuple(node.id for node in host.nodes if node.id not in around and not node.memoryless)


def _enough(host: Host, places: Sequence[Place]) -> None:
    if not LEAST_RANKS <= len(places) <= MOST_RANKS:
        raise NearsocketError(
            f"{one_line(host.name, 100)}: expected {LEAST_RANKS} to {MOST_RANKS} ranks, found {len(places)}",
            "an all-reduce needs two GPUs; --ranks-per-gpu 2 rehearses it on one",
        )
