"""What an apply is to probe before the starts of a plan's replicas. Pure."""

from __future__ import annotations

import dataclasses

from nearsocket.control import container
from nearsocket.control.probe import bases
from nearsocket.control.probe.bases import Wish
from nearsocket.model.host import Host
from nearsocket.model.plan.values import Plan, ReplicaPlan
from nearsocket.model.probe import path, planning, sizes, starts
from nearsocket.model.probe.order import Backend
from nearsocket.model.probe.path import PathProbe
from nearsocket.model.settings import BeforeStart

#: Enough to tell a difference from noise, in a few seconds.
_ROUNDS, _BUDGET_S = 3, 0.1


def probes(host: Host, made: Plan, near: frozenset[int] | None) -> tuple[PathProbe, ...]:
    """One for each managed replica that asks for it and has a path: two GPUs or more. `near`: the user's word on their nodes."""
    return tuple(
        _one(host, made, replica, near)
        for replica in made.managed
        if replica.settings.probe.before_start is BeforeStart.AUTO and bases.LEAST_RANKS <= len(replica.gpus) <= bases.MOST_RANKS
    )


def limit_s(given: tuple[PathProbe, ...]) -> float:
    """Seconds that all of them may take, one after another."""
    return starts.ProbeOrder(tuple(one.start for one in given)).limit_s


def _one(host: Host, made: Plan, replica: ReplicaPlan, near: frozenset[int] | None) -> PathProbe:
    asked = replica.settings.probe
    # What a lab's processors add up in seconds has no prefill size.
    chosen = sizes.FEW[:-1] if asked.backend is Backend.STANDIN else sizes.FEW
    wish = Wish(asked.backend, sizes=chosen, rounds=_ROUNDS, budget_s=_BUDGET_S, limit_s=float(asked.limit_s))
    subject = bases.of_replica(host, replica, wish)
    # A name that the next apply knows: it ends what this one was not there to end.
    base = dataclasses.replace(subject.base, container=f"nearsocket-path-{replica.name}")
    return PathProbe(
        replica.name,
        planning.start(base, planning.CONFIGURED, 0),
        subject.image,
        bases.driver(host),
        path.environment_digest(base.environment),
        made.fingerprint.digest,
        subject.gpus,
        " ".join([*container.run_binding(replica), *container.numactl(replica), *map(str, replica.ranks)]),
        None if near is None else tuple(sorted(near)),
    )
