"""One apply from order to outcome: lock, read, decide, carry out; and what a survey says of what is installed."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.changes import Difference
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Generation
from nearsocket.model.order import Order, Part
from nearsocket.model.outcome import Installed, Outcome
from nearsocket.model.probe.path import Result
from nearsocket.model.settings import Adopt
from nearsocket.model.text import in_words
from nearsocket.onhost import hook
from nearsocket.onhost.apply import (
    adopt,
    build,
    diff,
    freeze,
    guard,
    images,
    journal,
    leave,
    lock,
    parts,
    pathprobe,
    progress,
    proven,
    replicas,
    rollback,
    startproof,
    state,
    steps,
    surveyed,
    upgrading,
    values,
    work,
)
from nearsocket.onhost.apply.pathprobe import Prober, Ways
from nearsocket.onhost.apply.state import State
from nearsocket.onhost.apply.steps import Interrupted, Job
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.apply.work import Leave, Work
from nearsocket.onhost.collect.command import CommandTimeout


@dataclass
class Clock:
    """Seconds that each step took."""

    timings: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.monotonic)

    def done(self, step: str) -> None:
        """The step ended now."""
        now = time.monotonic()
        self.timings[step] = round(now - self.last, 4)
        self.last = now


def apply(
    order: Order,
    program: bytes,
    tree: Tree,
    systemctl: Systemctl,
    holder: str = "nearsocket apply",
    look: Optional[guard.Look] = None,
    ways: Optional[Ways] = None,
) -> Outcome:
    """Carry out the order; every fault of the outside world is in the outcome's `error`. `look`: how the guard sees the host;
    `ways`: how paths are probed (None: none is)."""
    clock = Clock()
    prober = Prober(tree, systemctl, ways) if ways else None
    try:
        with lock.shared(tree, order.lock_wait_s) if order.dry else lock.exclusive(tree, holder, order.lock_wait_s):
            clock.done("lock")
            return _locked(order, program, tree, systemctl, clock, look, holder, prober)
    except NearsocketError as error:
        refused = _refused(tree, order, clock, error.message, error.hint)
        return dataclasses.replace(refused, moved=isinstance(error, surveyed.Moved))
    except (OSError, CommandTimeout) as error:
        return _refused(tree, order, clock, in_words(error), "nothing was changed")


def _refused(tree: Tree, order: Order, clock: Clock, message: str, hint: Optional[str]) -> Outcome:
    number = tree.number()
    return Outcome(order.dry, number, number, None, timings=clock.timings, error=message, hint=hint)


def _locked(
    order: Order,
    program: bytes,
    tree: Tree,
    systemctl: Systemctl,
    clock: Clock,
    look: Optional[guard.Look],
    holder: str,
    prober: Optional[Prober],
) -> Outcome:
    if not order.remove and order.part is not Part.IMAGE:
        upgrading.refuse(tree)  # dry too: what stops a fleet is to be seen before any host is changed
    progress.refuse_taken(tree, order)
    surveyed.refuse_moved(tree, order)
    if order.remove:
        return _left(order, tree, systemctl, clock, look, holder)
    job = dataclasses.replace(_job(order, program, tree, systemctl), prober=prober)
    clock.done("read")
    if not job.todo.nothing and order.part is not Part.IMAGE:
        guard.refuse(order, job.todo.reload, job.generation.manifest, job.found, look)
        clock.done("guard")
    todo, found, manifest = job.todo, job.found, job.generation.manifest
    text = diff.unified(
        (*todo.difference.added, *todo.difference.changed, *todo.difference.removed), found.contents, job.generation.contents
    )
    changes = work.listed(todo, job.number, found)
    outcome = Outcome(order.dry, job.number, found.number, manifest.digest, changes, text, todo.notes)
    if order.dry:
        frozen = freeze.in_force(tree, order.freeze)
        refused = f"{frozen}; a change is refused" if frozen else None
        outcome = dataclasses.replace(outcome, notes=(*outcome.notes, *([refused] if refused else [])), frozen=refused)
    elif todo.nothing:
        steps.discard(found, tree)
        proven.sweep(tree, systemctl)
        journal.clear(tree)
        progress.write(tree, order.rollout and order.rollout.at(progress.done(order)))
    else:
        overridden = freeze.pass_or_refuse(tree, order.freeze, order.override_freeze, holder)
        outcome = dataclasses.replace(outcome, notes=(*outcome.notes, *([overridden] if overridden else [])))
        progress.write(tree, order.rollout)
        hook.forget(tree, manifest.replicas)
        outcome = _carried_out(outcome, _one_by_one(order, job, tree, clock), tree, systemctl, clock)
        hooked = [said for one in manifest.replicas if (said := hook.failed(tree, one.name))]
        outcome = dataclasses.replace(outcome, notes=(*outcome.notes, *hooked))
        outcome = progress.conclude(tree, order, outcome)
    return dataclasses.replace(outcome, states=_states(systemctl, job), timings=clock.timings)


def _left(order: Order, tree: Tree, systemctl: Systemctl, clock: Clock, look: Optional[guard.Look], holder: str) -> Outcome:
    """Leave the host. Raises NearsocketError where that is refused, OSError, CommandTimeout."""
    leaving = leave.decide(tree, systemctl, order.keep_engines)
    clock.done("read")
    outcome = Outcome(order.dry, None, leaving.found.number, None, leave.listed(leaving), notes=leave.notes(leaving, tree))
    if leaving.job:
        guard.refuse(order, leaving.todo.reload, leaving.job.generation.manifest, leaving.found, look)
        clock.done("guard")
    if order.dry or leaving.nothing:
        if not order.dry:
            lock.forget(tree)
        return dataclasses.replace(outcome, timings=clock.timings)
    overridden = freeze.pass_or_refuse(tree, order.freeze, order.override_freeze, holder)
    outcome = dataclasses.replace(outcome, notes=(*outcome.notes, *([overridden] if overridden else [])), timings=clock.timings)
    try:
        problem = leave.carry_out(leaving, tree, systemctl, clock.done)
    except (Interrupted, OSError, CommandTimeout) as cut:
        said = cut.message if isinstance(cut, Interrupted) else in_words(cut)
        return dataclasses.replace(outcome, number=tree.number(), error=said, hint="run this again: it completes", wrote=True)
    if problem is None:
        lock.forget(tree)
    return dataclasses.replace(outcome, number=tree.number(), error=problem, hint="run this again" if problem else None, wrote=True)


def _job(order: Order, program: bytes, tree: Tree, systemctl: Systemctl) -> Job:
    """What the order comes to here. Raises NearsocketError where it is refused, OSError, CommandTimeout."""
    back = order.generation is None
    made, chosen = (order.generation, 0) if order.generation else rollback.find(tree, systemctl, order.number)
    if order.part in (Part.TUNE, Part.ENGINE):
        made = parts.merged(_in_force(tree), made, order.part)
    manifest = made.manifest
    found = state.read(tree, systemctl, manifest)
    if order.part is Part.IMAGE:
        todo = Work(Difference(), images=images.missing(systemctl, manifest.replicas))
        return Job(todo, found, made, found.number or 0, True, program)
    at_once = {one.unit for one in order.handovers if one.how is Adopt.NOW}
    found = dataclasses.replace(found, awaiting=found.awaiting - at_once)
    settings, notes = values.decide(tree, values.wanted(manifest, made.contents))
    leave = Leave(order.allow_removals, order.force or back)
    todo = work.decide(found, manifest, hashlib.sha256(program).hexdigest(), leave, settings, notes)
    if back and found.number != chosen:
        todo = dataclasses.replace(todo, build=True)  # the same files under another number: still a switch
    taken = adopt.fresh(tree, order.handovers, bool(found.unfinished or found.void))
    adopt.refuse_too_old(systemctl, taken)
    begin = {entry.unit for entry in todo.restart} | set(todo.start) | {one.unit for one in taken}
    todo = work.with_handovers(todo, taken)
    starting = [*(entry.unit for entry in todo.restart), *todo.start]
    todo = dataclasses.replace(todo, probes=proven.due(tree, order.probes, manifest.replicas, starting))
    todo = dataclasses.replace(todo, images=images.missing(systemctl, [r for r in manifest.replicas if r.unit in begin]))
    if not found.damage:
        replicas.refuse_taken(tree, systemctl, manifest, found.manifest, frozenset(one.replica for one in order.handovers))
    if not todo.build:
        return Job(todo, found, made, found.number or 0, True, program)
    return Job(todo, found, made, chosen or build.next_number(tree, found), back, program)


def _in_force(tree: Tree) -> Optional[Generation]:
    """The generation in force, its files as they were written where they still are. Raises OSError, NearsocketError."""
    number = tree.number()
    if number is None:
        return None
    manifest = state.manifest_of(tree, number)
    observed, contents = state.observe(tree, number, manifest)
    damaged = state.drifted(manifest, observed)
    if damaged:
        raise NearsocketError(
            f"expected generation {number} as it was written, found {damaged[0]} changed by hand",
            "run deploys/site.py: it puts all right",
        )
    return Generation(manifest, contents)


def _carried_out(outcome: Outcome, job: Job, tree: Tree, systemctl: Systemctl, clock: Clock) -> Outcome:
    try:
        problem = steps.carry_out(job, tree, systemctl, clock.done)
    except Interrupted as cut:
        outcome = dataclasses.replace(outcome, number=tree.number(), error=cut.message, hint=cut.hint, wrote=cut.wrote)
        return _with_probes(outcome, job.prober)
    hint = "the generation is in force; look at the unit's journal, then run this again" if problem else None
    return _with_probes(dataclasses.replace(outcome, wrote=True, error=problem, hint=hint), job.prober)


def _with_probes(outcome: Outcome, prober: Optional[Prober]) -> Outcome:
    if prober is None:
        return outcome
    broken = any(one.result is Result.BROKEN for one in prober.found)
    hint = "nearsocket audit; docs/probe.md; `probe: {before_start: never}` starts it all the same" if broken else outcome.hint
    notes = (*outcome.notes, *pathprobe.notes(prober.found))
    return dataclasses.replace(outcome, notes=notes, probes=tuple(prober.found), hint=hint)


def _one_by_one(order: Order, job: Job, tree: Tree, clock: Clock) -> Job:
    """The job with a look at each replica as it is up, where the order asks for that."""
    stop_at = order.one_by_one
    if stop_at is None:
        return job

    def after(unit: str) -> Optional[str]:
        clock.done(f"unit {unit}")
        return startproof.problem(tree, job.generation.manifest, unit, stop_at)

    return dataclasses.replace(job, after=after)


def _states(systemctl: Systemctl, job: Job) -> Mapping[str, str]:
    names = [unit.name for unit in job.generation.manifest.units if unit.start]
    try:
        return {name: str(now) for name, now in systemctl.show(names).items()}
    except (OSError, CommandTimeout):
        return {name: str(job.found.units[name]) for name in names if name in job.found.units}


def installed(program: bytes, tree: Tree, systemctl: Systemctl) -> Installed:
    """What is in force, and whether an apply of the same would find nothing to do. Raises OSError, CommandTimeout."""
    found = state.read(tree, systemctl)
    if found.manifest is None:
        reasons = tuple(reason for reason in (found.damage, "a cut apply left things behind" if found.void else None) if reason)
        return Installed(found.number, None, found.program, False, reasons)
    replicas_here = tuple(replica.name for replica in found.manifest.replicas)
    digest = found.manifest.digest
    try:
        reasons = _reasons(found, program, tree)
    except NearsocketError as error:
        reasons = (error.message,)
    return Installed(found.number, digest, found.program, not reasons, reasons, replicas_here)


def _reasons(found: State, program: bytes, tree: Tree) -> tuple[str, ...]:
    manifest = found.manifest
    if manifest is None:
        return ()
    settings, notes = values.decide(tree, values.wanted(manifest, found.contents))
    todo = work.decide(found, manifest, hashlib.sha256(program).hexdigest(), Leave(force=True), settings, notes)
    listed = tuple(str(change) for change in work.listed(todo, found.number or 0, found))
    waiting = tuple(f"{name} is still starting" for name in todo.wait)
    left = ("a cut apply left things behind",) if found.void or found.unfinished else ()
    return (*listed, *waiting, *left)
