"""Taking one host to what its settings say: read it once, plan, render, and apply by one exec, or by none where nothing changed."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from nearsocket.control import audit, planning, program, snapshots
from nearsocket.control.firstlook import FirstLook
from nearsocket.control.probe import path
from nearsocket.control.record import who
from nearsocket.control.render import render
from nearsocket.control.target import Target
from nearsocket.control.transport import Answer, Transport, TransportError, Trouble
from nearsocket.control.transport.process import Children
from nearsocket.model import holders, outcome
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.generation import Generation, Manifest, Record
from nearsocket.model.handover import Handover, handovers
from nearsocket.model.host import Host
from nearsocket.model.order import Order, Part
from nearsocket.model.outcome import Installed, Outcome
from nearsocket.model.plan.make import plan
from nearsocket.model.plan.values import Plan
from nearsocket.model.settings import Adopt, Runtime
from nearsocket.model.snapshot import Snapshot, SourceStatus
from nearsocket.model.text import one_line
from nearsocket.model.verdicts import reloadrisk

#: Reading, building, links and reloads, on a slow host.
_OWN_S = 600.0
#: Pulling an image of tens of gigabytes.
_PULL_S = 7200.0
#: What a plan is made of: one of these unread for once (seen: NVML on a slow machine) is not the same as a host without it.
_RESTS_ON = ("nvml", "nodes", "cpus", "pci", "meminfo", "docker.info", "cdi")


@dataclass(frozen=True)
class Leave:
    """What the user gave leave for: taking replicas out, a reload that may cost containers their GPUs, an older commit, and why
    a frozen host is to change. `wait_s`: how long to wait for another operator's apply."""

    removals: bool = False
    reload: bool = False
    force: bool = False
    override_freeze: str | None = None
    wait_s: float = 0.0


@dataclass(frozen=True)
class Prepared:
    """One host, read and planned: its generation, what is installed, and the order that would make it real.

    `order` None: the host is as it should be. `handovers`: engines of others that run on or are taken over.
    """

    target: Target
    plan: Plan
    generation: Generation
    installed: Installed
    order: Order | None
    handovers: tuple[Handover, ...] = ()


def survey(
    target: Target, way: Transport, timeout_s: float, children: Children | None = None, wait_s: float | None = None
) -> Snapshot:
    """The host's snapshot with what is installed there, by one exec. Raises TransportError.

    `wait_s`: an apply at work there is waited for so long; without it the host is read as it is at that moment.
    """
    own_s = max(1.0, timeout_s - min(10.0, timeout_s / 4))
    waits = ["--lock-wait", f"{wait_s:g}"] if wait_s is not None else []
    sent = audit.password_line(target.sudo) + program.payload(["survey", "--timeout", f"{own_s:g}", "--host", target.name, *waits])
    words, limit_s = audit.command(target), timeout_s + (wait_s or 0.0)
    return snapshots.asked(lambda: way.run(words, sent, limit_s, children or Children()), target.name)


def prepare(
    target: Target,
    snapshot: Snapshot,
    record: Record,
    leave: Leave,
    templates: Path,
    part: Part | None = None,
    first: FirstLook | None = None,
) -> Prepared:
    """Plan and render for the host as it was read, by the templates of that folder. Pure but for reading them.

    `first`: how a host that has nothing of ours yet is audited before. Raises NearsocketError, one line, where the plan or a new
    host is refused or the host holds what is somebody else's.
    """
    if target.settings is None:
        raise UsageError(
            f"{target.name}: expected what to serve, found none", "say it in the inventory: nearsocket_serve, nearsocket_replicas"
        )
    _refuse_holes(snapshot, any(replica.runtime is Runtime.DOCKER for replica in target.settings.replicas))
    host = snapshots.parsed(snapshot, target.near)
    made = plan(host, target.settings)
    generation = render(made, record, templates)
    installed = _installed(snapshot)
    if first is not None and installed.number is None and made.managed and part in (None, Part.ENGINE):
        first.refuse(host)
    here, _ = planning.in_force(host)
    adopt = {replica.name: replica.adopt for replica in target.settings.replicas if replica.adopt}
    given = handovers(host, generation.manifest.replicas, adopt, here) if part in (None, Part.ENGINE) else ()
    _refuse_held(host, generation, installed, here, given)
    at_once = any(one.how is Adopt.NOW for one in given)
    if part is None and not at_once and installed.clean and installed.digest == generation.manifest.digest:
        return Prepared(target, made, generation, installed, None, given)
    probes = path.probes(host, made, target.near) if part in (None, Part.ENGINE) else ()
    order = with_leave(Order(generation, part=part, reload_risk=reload_risk(host), handovers=given, probes=probes), leave)
    return Prepared(target, made, generation, installed, order, given)


def with_leave(order: Order, leave: Leave) -> Order:
    """The order with what the user gave leave for."""
    return dataclasses.replace(
        order,
        allow_removals=leave.removals,
        force=leave.force,
        accept_reload_risk=leave.reload,
        lock_wait_s=leave.wait_s,
        override_freeze=leave.override_freeze,
    )


def apply(target: Target, way: Transport, order: Order, dry: bool = False, children: Children | None = None) -> Outcome:
    """Carry out the order by one exec. Raises TransportError where there is no answer."""
    sent = program.payload(
        ["apply", "--holder", who(os.environ)],
        dataclasses.replace(order, dry=dry, freeze=target.freeze).to_json().encode(),
    )
    limit_s = order.lock_wait_s + (_OWN_S if dry else limit(target) + path.limit_s(order.probes))
    answer = way.run(audit.command(target), audit.password_line(target.sudo) + sent, limit_s, children or Children())
    return _outcome(answer)


def limit(target: Target) -> float:
    """Seconds that an apply may take: each replica may be stopped, pulled and started in turn."""
    replicas = target.settings.replicas if target.settings else ()
    return _OWN_S + _PULL_S + sum(replica.limits.start_s + 3 * replica.limits.stop_s for replica in replicas)


def reload_risk(host: Host) -> str | None:
    """Why a daemon-reload could take GPUs from a running container; None where it takes none."""
    found = reloadrisk.risk(host)
    return found.reason if found else None


def _refuse_holes(snapshot: Snapshot, docker: bool) -> None:
    """Raises NearsocketError where a source that plans rest on gave no answer this time: another plan would restart engines.

    A Docker that is installed and does not run says so by an error, every time: that is an answer where no replica needs it. Where
    one does (`docker`), it may just be starting, as after a boot, and a plan made now would give its GPUs another way.
    """
    for name in _RESTS_ON:
        source = snapshot.source(name)
        lasting = name == "docker.info" and not docker
        if source.status is SourceStatus.TIMEOUT or (source.status is SourceStatus.ERROR and not lasting):
            hint = "run it again; a busy host may need a higher nearsocket_timeout"
            if name == "docker.info" and source.status is SourceStatus.ERROR:
                hint = "systemctl status docker; run it again once Docker answers"
            found = one_line(source.reason or source.status.value, 160)
            raise NearsocketError(f"expected to read {name} before planning, found: {found}", hint)


def _refuse_held(
    host: Host, generation: Generation, installed: Installed, here: Manifest | None, given: tuple[Handover, ...] = ()
) -> None:
    """Raises NearsocketError where a GPU that is new to the host's generation is somebody else's, and is not taken over."""
    known = {one.replica for one in given} | (set(installed.replicas) if here is None else set())
    holders.refuse_held(host, [replica for replica in generation.manifest.replicas if replica.name not in known], here)


def _installed(snapshot: Snapshot) -> Installed:
    source = snapshot.source("installed")
    if not source.ok:
        raise NearsocketError(f"expected to read what is installed on the host, found: {source.reason}", "run it as root (_sudo)")
    return outcome.installed_from(source.data)


def _outcome(answer: Answer) -> Outcome:
    start = max(0, answer.stdout.find(b'{"schema"'))
    try:
        return outcome.from_json(answer.stdout[start:].decode("utf-8", "replace"))
    except NearsocketError as error:
        hint = "the answer was cut; the apply went on by itself: run this again, it says what is left to do"
        raise TransportError(Trouble.ANSWER, error.message, hint, answer.stderr) from None
