"""Replicas behind the new driver: what their containers see, then one after another up, each held until it is proven."""

from __future__ import annotations

import dataclasses
from typing import Optional

from nearsocket.model.driver.orders import Action, Answer, Phase, State
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import ReplicaEntry
from nearsocket.model.host import Host
from nearsocket.model.order import StopAt
from nearsocket.onhost import hook
from nearsocket.onhost.apply import startproof
from nearsocket.onhost.reprovision import facts, kept, sight, stopping
from nearsocket.onhost.reprovision.work import Work


def seen_inside(work: Work, state: State, host: Host) -> tuple[str, ...]:
    """Whether containers get their GPUs; notes. One that runs shows it by that. Raises NearsocketError where one is known not to.

    On the way back, and of a replica that did not run before, that is a note: others are to come up all the same.
    """
    here = facts.manifest(work.tree)
    if here is None:
        return ()
    states = work.systemctl.show([replica.unit for replica in here.replicas])
    asked = [replica for replica in here.replicas if states[replica.unit].active != "active"]
    strict = () if state.back else tuple(replica.name for replica in asked if replica.unit in state.units)
    return sight.told(work.eyes.look(host, asked), strict)


def start(work: Work) -> Answer:
    """One replica up, proven by its start. One that did not run before is left down; one that is up unproven stays so, held.

    It is held until it is proven: its own start is let through, and a boot or a crash in between finds it held. Then it is let go
    for good. One that an earlier try left up and unproven is started anew.
    """
    state = work.known()
    if state.phase is not Phase.PROVEN:
        raise NearsocketError(f"expected the driver to be proven before a replica starts, found {state.phase.value}", "--resume")
    here = facts.manifest(work.tree)
    entry = next((one for one in here.replicas if one.name == work.order.replica), None) if here else None
    if here is None or entry is None:
        raise NearsocketError(f"expected a replica of this host, found {work.order.replica!r}", "run deploys/site.py")
    if entry.unit not in state.units:
        return Answer(Action.START, state, notes=(f"replica {entry.name} did not run before: it is left as it is",), touched=True)
    facts.refuse_older_units(work.tree, here, [entry.name])
    # Written before it begins: whoever goes on knows that GPUs are in use from then on.
    begun = tuple(dict.fromkeys((*state.started, entry.unit)))
    state = kept.write(work.tree, dataclasses.replace(state, started=begun, measured=work.order.measured or state.measured))
    wrong = _brought_up(work, entry)
    if wrong is None:
        kept.let_go(work.tree, entry.name)
        return Answer(Action.START, state, touched=True, hooked=startproof.hooked(work.tree, entry.name))
    why = stopping.under_way(state)
    if entry.name in state.measured:
        why = f"replica {entry.name} did not come up behind the driver {state.to}, which is proven: {wrong}"
    kept.hold(work.tree, [entry.name], why)
    if work.systemctl.show([entry.unit])[entry.unit].active == "active":
        wrong = f"{wrong}; it stays up, and held: no crash and no boot starts it again"
    return Answer(Action.START, state, error=wrong, hint=f"journalctl -u {entry.unit}", touched=True)


def _brought_up(work: Work, entry: ReplicaEntry) -> Optional[str]:
    """Why it is not up and proven; None where it is, whatever its hooks came to. Raises OSError, CommandTimeout, NearsocketError.

    One that is up behind a hook that failed is started anew: that is what calls the hook again.
    """
    stop_at = StopAt.FAILURE if work.order.accept_unknown else StopAt.UNKNOWN
    if work.systemctl.show([entry.unit])[entry.unit].active == "active":
        if startproof.hooked(work.tree, entry.name) is None and startproof.unproven(work.tree, entry.name, stop_at) is None:
            return None
        work.systemctl.stop([entry.unit])
    hook.forget(work.tree, [entry])  # what an earlier drain or start came to says nothing of this one
    with kept.let_start(work.tree, entry.name):
        work.systemctl.reset_failed([entry.unit])
        problem = work.systemctl.start([entry.unit])
    now = work.systemctl.show([entry.unit])[entry.unit]
    if problem is None and now.active != "active":
        problem = f"it is {now}"
    if problem is not None:
        return f"expected {entry.unit} to start, found: {problem}"
    return startproof.unproven(work.tree, entry.name, stop_at)
