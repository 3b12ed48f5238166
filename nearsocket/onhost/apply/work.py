"""What one apply has to do: from a server's state and the manifest that is wanted, to steps, or to a refusal. Pure.

The dry run and the real one come from this one decision, so that they say the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nearsocket.model import changes
from nearsocket.model.changes import Difference
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Link, Manifest, ReplicaEntry
from nearsocket.model.handover import Handover
from nearsocket.model.outcome import Action, Change, Kind
from nearsocket.model.probe.path import DueProbe
from nearsocket.model.settings import Adopt
from nearsocket.onhost.apply.images import Pull
from nearsocket.onhost.apply.journal import Restart
from nearsocket.onhost.apply.state import At, State
from nearsocket.onhost.apply.values import Setting

_DOWN = ("inactive", "failed", "deactivating")
_CURE = "move it away or take it over by hand, then run this again"


@dataclass(frozen=True)
class Leave:
    """What the user gave leave for (see model/order.py)."""

    allow_removals: bool = False
    force: bool = False


@dataclass(frozen=True)
class Work:
    """The steps. `build`: the generation in force is not what is wanted. `links_add`: made before the switch, since nothing
    stands there; `links_fix`: replaced after it; `links_drop`: removed after it. `aside_*`: kept aside first. `restart` in its
    order. `wait`: units that are starting; to wait for one is no change."""

    difference: Difference
    build: bool = False
    program: bool = False
    aside_files: tuple[str, ...] = ()
    aside_links: tuple[str, ...] = ()
    links_add: tuple[Link, ...] = ()
    links_fix: tuple[Link, ...] = ()
    links_drop: tuple[str, ...] = ()
    removals: tuple[ReplicaEntry, ...] = ()
    images: tuple[Pull, ...] = ()
    reload: bool = False
    settings: tuple[Setting, ...] = ()
    restart: tuple[Restart, ...] = ()
    start: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    handovers: tuple[Handover, ...] = ()
    probes: tuple[DueProbe, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to do."""
        return self == Work(self.difference, notes=self.notes)


def decide(
    state: State, new: Manifest, program: str, leave: Leave, settings: tuple[Setting, ...] = (), notes: tuple[str, ...] = ()
) -> Work:
    """The steps to `new`. `program`: SHA-256 of the one that runs. Raises NearsocketError where the apply is refused."""
    difference = changes.difference(state.observed, new)
    pending, void = state.unfinished, state.void
    wanted = {link.path: link for link in new.links}
    known = {link.path for link in state.manifest.links} if state.manifest else set()
    _refuse_foreign(state, wanted, known, new)
    gone = {*difference.links_removed, *(pending.links_removed if pending else ()), *(void.links_added if void else ())}
    names = {unit.name for unit in new.units}
    stop = {*difference.stop, *(pending.stop if pending else ())} - names
    restart = _restarts(state, new, difference)
    again = {entry.unit for entry in restart}
    wanted_up = sorted(unit.name for unit in new.units if unit.start and unit.name not in again | state.awaiting)
    work = Work(
        difference,
        build=not difference.same,
        program=state.program != program,
        aside_files=tuple(path for path in state.drifted if path in state.contents),
        aside_links=tuple(sorted(path for path in wanted if state.links.get(path) is At.FILE)),
        links_add=tuple(wanted[path] for path in sorted(wanted) if state.links.get(path, At.ABSENT) is At.ABSENT),
        links_fix=tuple(wanted[path] for path in sorted(wanted) if state.links.get(path) in (At.OURS, At.OTHER, At.FILE)),
        links_drop=tuple(sorted(path for path in gone - wanted.keys() if _ours(state, path))),
        removals=difference.removed_replicas,
        settings=settings,
        restart=restart,
        start=tuple(name for name in wanted_up if _down(state, name)),
        wait=tuple(name for name in wanted_up if name in state.units and state.units[name].active == "activating"),
        stop=tuple(sorted(name for name in stop if not _down(state, name))),
        notes=(*notes, *_notes(state)),
    )
    unit_links = {link.path for link in (*new.links, *(state.manifest.links if state.manifest else ())) if link.unit}
    moved = {*(link.path for link in (*work.links_add, *work.links_fix)), *work.links_drop} & unit_links
    stale = any(state.units[name].stale for name in sorted(names & state.units.keys()))
    work = dataclasses.replace(
        work, reload=difference.reload or bool(moved) or stale or bool(pending and pending.reload and not _booted(state, new))
    )
    _refuse(work, state, new, leave)
    return work


def _restarts(state: State, new: Manifest, difference: Difference) -> tuple[Restart, ...]:
    """Units to restart: changed ones, and those that an apply that was cut short did not come to. One that is down is started."""
    entries = {name: Restart(name) for name in difference.restart}
    if state.damage:  # what was running belongs to files that nobody knows any more
        entries.update({unit.name: Restart(unit.name) for unit in new.units if unit.start})
    for entry in state.unfinished.restart if state.unfinished and not _booted(state, new) else ():
        now = state.units.get(entry.unit)
        if entry.before and now and now.invocation != entry.before and now.active in ("active", "activating"):
            continue  # it was restarted before the end came
        if any(unit.name == entry.unit and unit.start for unit in new.units):
            entries.setdefault(entry.unit, dataclasses.replace(entry, before=None))
    touched = {*difference.added, *difference.changed, *difference.removed}
    mounts = {
        replica.unit: replica.mount
        for replica in new.replicas
        if replica.mount and any(path.rpartition("/")[2] == replica.mount for path in touched)
    }
    return tuple(
        dataclasses.replace(entries[name], mount=mounts.get(name, entries[name].mount))
        for name in sorted(entries)
        if not _down(state, name)
    )


def _booted(state: State, new: Manifest) -> bool:
    """Whether the host was started anew since an apply was cut short, from all the links that it is to have."""
    return bool(
        state.unfinished
        and state.boot
        and state.unfinished.boot != state.boot
        and all(state.links.get(link.path) is At.RIGHT for link in new.links)
    )


def _down(state: State, name: str) -> bool:
    return name not in state.units or state.units[name].active in _DOWN


def _ours(state: State, path: str) -> bool:
    """Whether a path that the new generation does not have is still the link that was made there."""
    if state.links.get(path) is At.OURS:
        return True
    before = {link.path: link.target for link in state.manifest.links} if state.manifest else {}
    return path in before and state.targets.get(path) == before[path]


def _refuse_foreign(state: State, wanted: dict[str, Link], known: set[str], new: Manifest) -> None:
    for path in sorted(wanted):
        found = state.links.get(path, At.ABSENT)
        foreign = found in (At.FILE, At.OTHER) and path not in known
        if found is At.FOLDER or foreign:
            raise NearsocketError(f"expected nothing of anybody else's at {path}, found {found.value}", _CURE)
    for unit in new.units:
        now = state.units.get(unit.name)
        own = [link.path for link in new.links if link.path.rpartition("/")[2] == unit.name]
        if now and now.load == "masked":
            raise NearsocketError(f"expected {unit.name} to be free to run, found it masked", f"systemctl unmask {unit.name}")
        if now and now.fragment and own and now.fragment not in own and not now.fragment.startswith("/etc/nearsocket/"):
            raise NearsocketError(f"expected no {unit.name} of anybody else's, found {now.fragment}", _CURE)


def _refuse(work: Work, state: State, new: Manifest, leave: Leave) -> None:
    if work.removals and not leave.allow_removals:
        named = ", ".join(replica.name for replica in work.removals)
        raise NearsocketError(
            f"expected leave to take out replicas that the settings no longer have: {named}",
            "put them back, or say --data allow_removals=true",
        )
    reason = changes.older(new.record, state.manifest.record) if state.manifest and work.build else None
    if reason and not leave.force:
        raise NearsocketError(
            f"expected the inventory's newest commit: {reason}", "pull the inventory's repository, or say --data force=true"
        )


def _notes(state: State) -> tuple[str, ...]:
    notes = [state.damage] if state.damage else []
    for name in sorted(state.units):
        unit = state.units[name]
        if unit.drop_ins:
            notes.append(f"{name} has drop-ins that nearsocket does not manage: {', '.join(unit.drop_ins)}")
    gone = [path for path in state.drifted if path not in state.contents]
    return (*notes, *(f"{path} of generation {state.number} was removed by hand" for path in gone))


def listed(work: Work, number: int, state: State) -> tuple[Change, ...]:
    """The changes, in the order in which they are made. `number`: the generation that will be in force."""
    by_hand = set(state.drifted)
    found = [Change(Kind.FILE, Action.ASIDE, path, "changed by hand") for path in (*work.aside_files, *work.aside_links)]
    if work.program:
        found.append(Change(Kind.PROGRAM, Action.CHANGE if state.program else Action.ADD, "nearsocket.pyz"))
    found += [Change(Kind.IMAGE, Action.PULL, pull.image) for pull in work.images]
    for action, paths in (
        (Action.ADD, work.difference.added),
        (Action.CHANGE, work.difference.changed),
        (Action.REMOVE, work.difference.removed),
    ):
        found += [Change(Kind.FILE, action, path, "was changed by hand" if path in by_hand else "") for path in paths]
    found += [Change(Kind.REPLICA, Action.REMOVE, replica.name) for replica in work.removals]
    found += [Change(Kind.LINK, Action.ADD, link.path) for link in work.links_add]
    if work.build:
        found.append(Change(Kind.GENERATION, Action.SWITCH, str(number)))
    found += [Change(Kind.LINK, Action.CHANGE, link.path) for link in work.links_fix]
    found += [Change(Kind.LINK, Action.REMOVE, path) for path in work.links_drop]
    if work.reload:
        found.append(Change(Kind.SYSTEMD, Action.RELOAD, "units"))
    found += [
        Change(Kind.VALUE, Action.SET, s.path, f"{s.value}, the value from before nearsocket" if s.restore else s.value)
        for s in work.settings
    ]
    found += [_handed(one) for one in work.handovers]
    found += [Change(Kind.REPLICA, Action.PROBE, one.replica.name, one.reason) for one in work.probes]
    found += [Change(Kind.UNIT, Action.RESTART, entry.unit) for entry in work.restart]
    found += [Change(Kind.UNIT, Action.START, name, _why_down(state, name)) for name in work.start]
    found += [Change(Kind.UNIT, Action.STOP, name) for name in work.stop]
    return tuple(found)


def with_handovers(work: Work, given: tuple[Handover, ...]) -> Work:
    """The steps with engines of others taken over: their units need a reload, and who waits for one to stop is not started."""
    waiting = {one.unit for one in given if one.how is Adopt.NEXT_RESTART}
    return dataclasses.replace(
        work,
        handovers=given,
        reload=work.reload or any(one.old_unit for one in given),
        start=tuple(name for name in work.start if name not in waiting),
        restart=tuple(entry for entry in work.restart if entry.unit not in waiting),
    )


def _handed(one: Handover) -> Change:
    if one.how is Adopt.NOW:
        return Change(Kind.UNIT, Action.STOP, one.old, f"replica {one.replica} takes over; it is kept, and not started at boot")
    return Change(Kind.UNIT, Action.CHANGE, one.old, f"runs on; replica {one.replica} starts when it stops")


def _why_down(state: State, name: str) -> str:
    now = state.units.get(name)
    return f"was {now}" if now and now.load == "loaded" and now.active in _DOWN else ""
