"""A replica's plan to what the programs of its start read (`nearsocket.start/1`), and the times that go with it. Pure."""

from __future__ import annotations

from nearsocket.control import container
from nearsocket.model import consequence, cpulist
from nearsocket.model.plan.values import ReplicaPlan
from nearsocket.model.settings import OnFar
from nearsocket.model.start import Start

#: How long freeing page cache may take before a start, in seconds.
RELIEF_S = 120
#: How long reading the host may take before a start.
FINGERPRINT_S = 120
#: How long a hook that lets traffic in may take.
HOOK_S = 60
#: Room between a time limit of ours and systemd's.
SPARE_S = 60
#: The watch's longest look at one replica (onhost/verify/watch.py), and what ending it takes.
WATCH_S = 90


def start(replica: ReplicaPlan) -> Start:
    """The record of that replica."""
    settings = replica.settings
    return Start(
        replica=replica.name,
        runtime=settings.runtime,
        container=container.unit_base(replica),
        unit=f"{container.unit_base(replica)}.service",
        image=settings.image.reference,
        gpus=tuple(gpu.pci for gpu in replica.gpus),
        gate=replica.gate,
        on_change=settings.on_change,
        near=cpulist.render(replica.near),
        relief=settings.relief,
        relief_timeout_s=RELIEF_S,
        model=settings.model,
        shm_point=replica.shm.point if replica.shm else None,
        shm_policy=f"bind:{cpulist.render(replica.shm.nodes)}" if replica.shm else None,
        bound=container.bound(replica),
        unbound=container.unbound(replica),
        secrets=dict(settings.secrets),
        health=health(replica),
        start_s=settings.limits.start_s,
        engine=settings.engine,
        slice=container.slice_name(replica),
        verify=settings.verify,
        window_s=window_s(replica),
    )


def timeout_start_s(replica: ReplicaPlan) -> int:
    """What systemd gives a start: preparing it, the load, the proof, letting traffic in."""
    settings = replica.settings
    hook_s = HOOK_S if settings.hooks.undrain else 0
    return FINGERPRINT_S + RELIEF_S + settings.limits.start_s + settings.verify.timeout_s + hook_s + SPARE_S


def timeout_stop_s(replica: ReplicaPlan) -> int:
    """What systemd gives each command of a stop."""
    return replica.settings.limits.stop_s + SPARE_S


def starts(replica: ReplicaPlan) -> int:
    """How many starts systemd allows in a window: the first, one for each crash that may be, and under `restart` the policy's own.

    systemd counts the restarts that a policy asks for, too; a far engine that serves must not be refused for them.
    """
    own = consequence.MOST_RESTARTS if replica.settings.verify.policy is OnFar.RESTART else 0
    return 1 + replica.settings.limits.restarts + own


def whole_stop_s(replica: ReplicaPlan) -> int:
    """What a stop may take: with a drain hook that, the wait until idle and the stop, else the stop alone."""
    return timeout_stop_s(replica) * (3 if replica.settings.hooks.drain else 1)


def window_s(replica: ReplicaPlan) -> int:
    """The time in which systemd counts starts: longer than all that it allows take, each at its own limit."""
    limits = replica.settings.limits
    return (timeout_start_s(replica) + whole_stop_s(replica) + limits.restart_delay_s) * (starts(replica) + 1)


def health(replica: ReplicaPlan) -> str:
    """The address that answers 200 once the engine serves, as the host itself reaches it."""
    host = reached(replica)
    return f"http://{f'[{host}]' if ':' in host else host}:{replica.port}{replica.settings.health}"


def reached(replica: ReplicaPlan) -> str:
    """Where the host itself reaches the engine."""
    listen = replica.settings.listen
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)  # noqa: S104 - a comparison
