"""A replica's plan to what the programs of its start read (`nearsocket.start/1`). Pure."""

from __future__ import annotations

from nearsocket.control import container
from nearsocket.model import cpulist
from nearsocket.model.plan.values import ReplicaPlan
from nearsocket.model.start import Start

#: How long freeing page cache may take before a start, in seconds.
RELIEF_S = 120


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
    )


def health(replica: ReplicaPlan) -> str:
    """The address that answers 200 once the engine serves, as the host itself reaches it."""
    listen = replica.settings.listen
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen, f"[{listen}]" if ":" in listen else listen)  # noqa: S104 - a comparison
    return f"http://{host}:{replica.port}{replica.settings.health}"
