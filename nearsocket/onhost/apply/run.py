"""One apply from order to outcome: lock, read, decide, and then the steps in an order that a cut can fall into anywhere.

Before the switch: files kept aside, program, generation, journal, replicas taken out, links where nothing stands. The switch is one
rename. After it: links replaced and removed, reload, kernel settings, restarts, starts, stops; the journal has what is left of these.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Generation
from nearsocket.model.order import Order
from nearsocket.model.outcome import Outcome
from nearsocket.onhost.apply import build, diff, disk, journal, lock, replicas, rollback, state, values, work
from nearsocket.onhost.apply.journal import Journal
from nearsocket.onhost.apply.state import State
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.apply.units import bring_up
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


@dataclass(frozen=True)
class Aim:
    """What is to be in force: the generation, its number, and whether its folder is there already."""

    generation: Generation
    number: int
    there: bool


class Interrupted(Exception):
    """A step failed. `wrote`: the new generation is in force, and the next run completes it."""

    def __init__(self, message: str, hint: str, wrote: bool) -> None:
        super().__init__(message)
        self.message, self.hint, self.wrote = message, hint, wrote


def apply(order: Order, program: bytes, tree: Tree, systemctl: Systemctl, holder: str = "nearsocket apply") -> Outcome:
    """Carry out the order; every fault of the outside world is in the outcome's `error`."""
    clock = Clock()
    try:
        with lock.shared(tree, order.lock_wait_s) if order.dry else lock.exclusive(tree, holder, order.lock_wait_s):
            clock.done("lock")
            return _locked(order, program, tree, systemctl, clock)
    except NearsocketError as error:
        return _refused(tree, order, clock, error.message, error.hint)
    except (OSError, CommandTimeout) as error:
        return _refused(tree, order, clock, said(error), "nothing was changed")


def said(error: Exception) -> str:
    """A fault of the system in words: what could not be done, and to which file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _refused(tree: Tree, order: Order, clock: Clock, message: str, hint: Optional[str]) -> Outcome:
    number = tree.number()
    return Outcome(order.dry, number, number, None, timings=clock.timings, error=message, hint=hint)


def aim(order: Order, tree: Tree, systemctl: Systemctl) -> Aim:
    """What the order is for. Raises NearsocketError where a generation to go back to cannot serve."""
    if order.generation is None:
        return Aim(*rollback.find(tree, systemctl, order.number), True)
    return Aim(order.generation, *build.number_for(tree, order.generation.manifest))


def _locked(order: Order, program: bytes, tree: Tree, systemctl: Systemctl, clock: Clock) -> Outcome:
    goal = aim(order, tree, systemctl)
    manifest = goal.generation.manifest
    found = state.read(tree, systemctl, manifest)
    settings, notes = values.decide(tree, values.wanted(manifest, goal.generation.contents))
    going_back = order.generation is None
    leave = Leave(order.allow_removals, order.force or going_back, order.reload_risk)
    todo = work.decide(found, manifest, hashlib.sha256(program).hexdigest(), leave, settings, notes)
    if going_back and found.number != goal.number:
        todo = dataclasses.replace(todo, build=True)
    replicas.refuse_taken(tree, systemctl, manifest, found.manifest)
    clock.done("read")
    number = goal.number if todo.build else found.number
    changes = work.listed(todo, goal.number, found, goal.there)
    text = diff.unified(
        (*todo.difference.added, *todo.difference.changed, *todo.difference.removed), found.contents, goal.generation.contents
    )
    outcome = Outcome(order.dry, number, found.number, manifest.digest, changes, text, todo.notes)
    if not (order.dry or todo.nothing):
        try:
            problem = _carry_out(todo, goal, program, tree, systemctl, found, clock)
        except Interrupted as cut:
            after = tree.number()
            outcome = dataclasses.replace(outcome, number=after, error=cut.message, hint=cut.hint, wrote=cut.wrote)
        else:
            outcome = dataclasses.replace(outcome, wrote=True, error=problem, hint=_after(problem))
    elif not order.dry and found.pending:
        journal.clear(tree)
    return dataclasses.replace(outcome, states=_states(systemctl, found, goal), timings=clock.timings)


def _after(problem: Optional[str]) -> Optional[str]:
    return "the generation is in force; look at the unit's journal, then run this again" if problem else None


def _states(systemctl: Systemctl, found: State, goal: Aim) -> Mapping[str, str]:
    names = [unit.name for unit in goal.generation.manifest.units if unit.start]
    try:
        return {name: str(now) for name, now in systemctl.show(names).items()}
    except (OSError, CommandTimeout):
        return {name: str(found.units[name]) for name in names if name in found.units}


def _carry_out(
    todo: Work, goal: Aim, program: bytes, tree: Tree, systemctl: Systemctl, found: State, clock: Clock
) -> Optional[str]:
    """All steps; what a unit's start failed with. Raises Interrupted."""
    number = goal.number if todo.build else (found.number or goal.number)
    plan = Journal(number, tuple(link.path for link in todo.links_add), todo.links_drop, todo.reload, todo.restart, todo.stop)
    try:
        _before(todo, goal, program, tree, systemctl, found, plan, clock)
    except (OSError, CommandTimeout) as error:
        kept = found.pending if found.pending and found.pending.to == found.number else None
        raise Interrupted(said(error), _undo(todo, tree, kept), wrote=False) from None
    try:
        if todo.build:
            disk.link(tree.current, f"generations/{number}")
        clock.done("switch")
        for link in todo.links_fix:
            _link(tree, link.path, link.target)
        for path in todo.links_drop:
            if disk.remove(tree.at(path)):
                disk.sync_folder(tree.at(path).parent)
        if todo.reload:
            systemctl.reload()
            plan = dataclasses.replace(plan, reload=False)
            journal.write(tree, plan)
        clock.done("reload")
        values.put(tree, todo.settings)
        problem, plan = bring_up(tree, systemctl, todo, plan)
        clock.done("units")
        if problem is None:
            journal.clear(tree)
        build.prune(tree)
    except (OSError, CommandTimeout) as error:
        hint = "the next run completes it" if tree.number() == number else "the old generation is in force; run this again"
        raise Interrupted(said(error), hint, wrote=True) from None
    return problem


def _before(
    todo: Work, goal: Aim, program: bytes, tree: Tree, systemctl: Systemctl, found: State, plan: Journal, clock: Clock
) -> None:
    _keep_aside(todo, tree, found)
    if todo.program:
        disk.make_folders(tree.program.parent)
        disk.replace(tree.program, program, 0o755)
    if todo.build and not goal.there:
        build.build(tree, goal.generation, goal.number)
    clock.done("build")
    disk.make_folders(tree.journal.parent)
    journal.write(tree, plan)
    for replica in todo.removals:
        replicas.take_out(tree, systemctl, replica)
    clock.done("removals")
    for link in todo.links_add:
        _link(tree, link.path, link.target)


def _link(tree: Tree, path: str, target: str) -> None:
    disk.make_folders(tree.at(path).parent)
    disk.link(tree.at(path), target)


def _undo(todo: Work, tree: Tree, kept: Optional[Journal]) -> str:
    """Take back the links that were made before the switch, and put back the journal of an earlier cut; what remains is told."""
    try:
        for link in todo.links_add:
            if os.path.lexists(tree.at(link.path)):
                disk.remove(tree.at(link.path))
        if kept:
            journal.write(tree, kept)
        else:
            journal.clear(tree)
    except OSError as error:
        return f"the old generation is in force; leftovers stay until the next run ({said(error)})"
    return "the old generation is in force" if tree.number() else "nothing of it is in force"


def _keep_aside(todo: Work, tree: Tree, found: State) -> None:
    if not (todo.aside_files or todo.aside_links):
        return
    folder = tree.aside / f"{found.number or 0}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"
    disk.make_folders(folder, 0o700)
    copies = [(path, found.contents[path]) for path in todo.aside_files]
    copies += [(path.lstrip("/"), disk.read(tree.at(path))) for path in todo.aside_links]
    for path, data in copies:
        copy = folder / path
        disk.make_folders(copy.parent, 0o700)
        disk.write_new(copy, data, 0o600)
        disk.sync_folder(copy.parent)


def installed(program: bytes, tree: Tree, systemctl: Systemctl) -> tuple[State, Optional[Work]]:
    """What is in force, and what an apply of the very same would do; None where nothing readable is in force.

    Raises OSError, CommandTimeout; NearsocketError where such an apply would be refused.
    """
    found = state.read(tree, systemctl)
    if found.manifest is None:
        return found, None
    settings, notes = values.decide(tree, values.wanted(found.manifest, found.contents))
    leave = Leave(force=True)
    return found, work.decide(found, found.manifest, hashlib.sha256(program).hexdigest(), leave, settings, notes)
