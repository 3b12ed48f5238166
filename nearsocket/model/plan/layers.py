"""Which layers hold a replica near, and which remain where one cannot hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.plan.cumem import CumemGate
from nearsocket.model.plan.memory import Fit
from nearsocket.model.plan.values import LayerState, Refusal
from nearsocket.model.settings import Layer, ReplicaSettings

#: Their order on every page; `auto` tries the first three and falls back to the fourth.
ORDER = (Layer.CUMEM, Layer.SHM, Layer.NUMACTL, Layer.CPUSET, Layer.PER_RANK)
#: What allocates through mbind or set_mempolicy, which Docker's seccomp profile gates on this capability.
NEEDS_SYS_NICE = frozenset({Layer.CUMEM, Layer.NUMACTL, Layer.PER_RANK})
_BIND_ARGUMENTS = ("--numa-node", "--numa-bind", "--numa-bind-nodes")
DECLARE = "declare host_memory (what the engine takes of host memory at most), or leave the layer out"


@dataclass(frozen=True)
class Ground:
    """What the choice rests on. `nodes`: near, with memory and CPUs; `room`: whether the caps of /dev/shm fit there.

    `nothing_far`: the host has one socket; `ranks` is None where a GPU's own node is not known.
    """

    sockets: tuple[int, ...]
    nodes: frozenset[int]
    nothing_far: bool
    gate: CumemGate
    fit: Fit
    shm_fit: Fit
    host_cache: Optional[str]
    ranks: Optional[tuple[int, ...]]


@dataclass(frozen=True)
class Choice:
    """All five layers' states, and the refusals."""

    states: tuple[LayerState, ...]
    refusals: tuple[Refusal, ...]

    def uses(self, layer: Layer) -> bool:
        """Whether that layer is used."""
        return any(state.layer is layer and state.used for state in self.states)


def choose(replica: ReplicaSettings, ground: Ground) -> Choice:
    """The layers of one replica. An explicit layer that would endanger the start is refused; one that cannot hold is left out.

    Nothing that remains is a refusal too, except where nobody asked for anything or nothing can be far.
    """
    asked = replica.binding
    if asked is not None and not asked:
        return Choice(tuple(LayerState(layer, False, "binding: none") for layer in ORDER), ())
    if asked is None and ground.nothing_far:
        return Choice(tuple(LayerState(layer, False, "one socket: nothing can be far") for layer in ORDER), ())
    spans = len(ground.sockets) > 1
    if spans and asked is not None and Layer.PER_RANK not in asked:
        names = cpulist.render(ground.sockets)
        refusal = Refusal(
            replica.name,
            f"its GPUs are on sockets {names}, and binding {_words(asked)} has no per-rank binding",
            "add per-rank to its binding, leave binding at auto, or give it GPUs of one socket",
        )
        return Choice(tuple(LayerState(layer, False, "refused") for layer in ORDER), (refusal,))
    states: dict[Layer, LayerState] = {}
    refusals: list[Refusal] = []
    for layer in ORDER:
        wanted = asked is None or layer in asked
        obstacle, hard = _obstacle(layer, replica, ground, spans)
        if not wanted:
            states[layer] = LayerState(layer, False, f"not asked for (binding: {_words(asked or frozenset())})")
        elif obstacle is not None:
            states[layer] = LayerState(layer, False, obstacle)
            if hard and asked is not None:
                refusals.append(Refusal(replica.name, f"binding {layer.value}: {obstacle}", DECLARE))
        else:
            states[layer] = _fitting(layer, asked is None, states, ground, spans)
    used = [state.layer for state in states.values() if state.used]
    if not used and not refusals:
        why = "; ".join(
            f"{state.layer.value}: {state.reason}" for state in states.values() if asked is None or state.layer in asked
        )
        refusals.append(
            Refusal(replica.name, f"no layer can hold it near ({why})", "change what stands in the way, or say binding: none")
        )
    return Choice(tuple(states[layer] for layer in ORDER), tuple(refusals))


def _obstacle(layer: Layer, replica: ReplicaSettings, ground: Ground, spans: bool) -> tuple[Optional[str], bool]:
    """Why the layer cannot hold, None where it can; and whether asking for it all the same endangers the start."""
    if layer is Layer.CUMEM:
        return (None, False) if ground.gate.open else (ground.gate.reason, False)
    if layer is Layer.PER_RANK:
        if ground.ranks is None:
            return "the own node of a GPU is not known", False
        return (None, False) if replica.image.numactl else ("the image has no numactl, by which engines bind their ranks", True)
    if spans:
        return "its GPUs are on several sockets: one set of nodes cannot be near to all of them", False
    if layer is Layer.SHM:
        listed = cpulist.render(ground.nodes)
        if "," in listed:
            return f"nodes {listed} are no range, and a mount's options are parted at commas", False
        return (None, False) if ground.shm_fit.fits is not False else (ground.shm_fit.reason, True)
    if layer is Layer.NUMACTL and not replica.image.numactl:
        return "the image has no numactl", True
    if ground.fit.fits is not True:
        return ground.fit.reason, True
    if ground.host_cache and replica.host_memory_bytes is None:
        return f"{ground.host_cache} keeps a cache in host memory and host_memory is not declared", True
    return None, False


def _fitting(layer: Layer, auto: bool, before: dict[Layer, LayerState], ground: Ground, spans: bool) -> LayerState:
    """The state of a layer that could hold, given those before it."""
    nodes = cpulist.render(ground.nodes)
    if layer is Layer.CUMEM:
        return LayerState(layer, True, f"NCCL allocates strictly near: {ground.gate.reason}")
    if layer is Layer.SHM:
        return LayerState(layer, True, f"a tmpfs bound to node {nodes} is its /dev/shm: {ground.shm_fit.reason}")
    if layer is Layer.NUMACTL:
        return LayerState(layer, True, f"all memory of the engine on node {nodes}: {ground.fit.reason}")
    if layer is Layer.CPUSET:
        if auto and before[Layer.NUMACTL].used:
            return LayerState(layer, False, "not needed: numactl binds already")
        return LayerState(layer, True, f"the kernel allows node {nodes} alone: {ground.fit.reason}")
    if spans:
        return LayerState(layer, True, f"each rank on its own GPU's node ({', '.join(map(str, ground.ranks or ()))})")
    if auto or before[Layer.NUMACTL].used:
        return LayerState(layer, False, "not needed: its GPUs share a socket")
    return LayerState(layer, True, f"each rank on its own GPU's node ({', '.join(map(str, ground.ranks or ()))})")


def own_binding_conflict(replica: ReplicaSettings, choice: Choice) -> Optional[Refusal]:
    """A word of the settings that binds as well and is not the plan's: one owner of the binding. None where there is none."""
    if not any(state.used for state in choice.states):
        return None
    found = [word for word in replica.arguments if word.partition("=")[0] in _BIND_ARGUMENTS]
    variable = replica.environment.get("SGLANG_AUTO_NUMA_BIND")
    wanted = "1" if choice.uses(Layer.PER_RANK) else "0"
    if variable is not None and variable.strip().lower() not in (("1", "true") if wanted == "1" else ("0", "false")):
        found.append(f"SGLANG_AUTO_NUMA_BIND={variable}")
    if not found:
        return None
    used = _words(frozenset(state.layer for state in choice.states if state.used))
    return Refusal(
        replica.name,
        f"{found[0]} in its settings binds as well, and the plan binds by {used}",
        "take it out of arguments and environment, or say binding: none and bind by yourself",
    )


def _words(layers: frozenset[Layer]) -> str:
    return ", ".join(layer.value for layer in ORDER if layer in layers)
