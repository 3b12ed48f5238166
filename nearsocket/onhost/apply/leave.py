"""Leaving a host: everything off, what was before put back, nothing left behind; or the engines left running on their own.

Each step may have been done before: a cut is completed by the next run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import programs, start
from nearsocket.model.changes import Difference
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Generation, Manifest, Record
from nearsocket.model.outcome import Action, Change, Kind
from nearsocket.model.standalone import Alone, Boot, alone
from nearsocket.onhost.apply import adopt, build, disk, folders, mounting, proven, state, steps, values, work
from nearsocket.onhost.apply.state import State
from nearsocket.onhost.apply.steps import Job
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.apply.work import Leave, Work
from nearsocket.onhost.verify import cgroups, publish

#: What is nearsocket's own on a host, the record of old values last. /run's part goes too, but for what kept engines use.
_OWN = ("/etc/nearsocket/current", "/etc/nearsocket/generations", "/etc/nearsocket/pending.json", "/usr/local/lib/nearsocket")
_STATE = "/var/lib/nearsocket"


@dataclass(frozen=True)
class Leaving:
    """What leaving comes to: `job` first (None: nothing is in force), then `files` and `boots`, then what is nearsocket's own."""

    found: State
    job: Optional[Job]
    files: tuple[Alone, ...] = ()
    boots: tuple[Boot, ...] = ()
    own: tuple[str, ...] = ()
    keep: bool = False

    @property
    def todo(self) -> Work:
        """The apply's part of it."""
        return self.job.todo if self.job else Work(Difference())

    @property
    def nothing(self) -> bool:
        """Whether this host has nothing of nearsocket's."""
        return self.job is None and not self.own


def decide(tree: Tree, systemctl: Systemctl, keep: bool) -> Leaving:
    """What there is to do. Raises NearsocketError where the generation in force is not known, OSError, CommandTimeout."""
    found = state.read(tree, systemctl)
    halfway = found.unfinished or (found.void and found.void.links_added)
    if found.damage or (keep and halfway and found.manifest and found.manifest.replicas):
        said = found.damage or "an apply that was cut short"
        raise NearsocketError(
            f"expected a generation in force that is whole, found {said}", "run deploys/site.py: it puts all right"
        )
    own = tuple(path for path in (*_OWN, _STATE) if tree.at(path).exists() or tree.at(path).is_symlink())
    if found.manifest is None and found.void is None:
        return Leaving(found, None, own=own, keep=keep)
    manifest = found.manifest or _empty("")
    kept = Generation(manifest, found.contents)
    files, boots = alone(kept, _starts(found)) if keep else ((), ())
    nothing = _empty(manifest.host)
    settings, notes = values.decide(tree, {})
    todo = work.decide(found, nothing, found.program or "", Leave(True, True), settings, notes)
    todo = dataclasses.replace(todo, program=False)
    if keep:
        replaced = {*(entry.path for entry in files), *(boot.path for boot in boots)}
        dropped = tuple(path for path in todo.links_drop if path not in replaced)
        engines = {name for replica in manifest.replicas for name in (replica.unit, replica.slice, replica.mount)}
        stop = tuple(name for name in todo.stop if name not in engines)
        todo = dataclasses.replace(todo, removals=(), stop=stop, links_drop=dropped, reload=bool(files))
        refuse_taken(tree, files)
    number = build.next_number(tree, found)
    return Leaving(found, Job(todo, found, Generation(nothing, {}), number, False, b""), files, boots, own, keep)


def refuse_taken(tree: Tree, files: tuple[Alone, ...]) -> None:
    """Raises NearsocketError where a file that is to stand alone would take the place of somebody else's."""
    for entry in files:
        path = tree.at(entry.path)
        if path.is_symlink() or not path.exists():
            continue
        if not path.is_file() or disk.read(path) != entry.content:
            raise NearsocketError(
                f"expected nothing of anybody else's at {entry.path}, found a file", "move it away, then run this again"
            )


def carry_out(leaving: Leaving, tree: Tree, systemctl: Systemctl, done: Callable[[str], None]) -> Optional[str]:
    """All steps; what a unit failed with, or None. Raises steps.Interrupted, OSError, CommandTimeout."""
    adopt.restore(tree, systemctl, leaving.keep)
    for entry in leaving.files:
        disk.make_folders(tree.at(entry.path).parent)
        disk.replace(tree.at(entry.path), entry.content, entry.mode)
    for boot in leaving.boots:
        disk.link(tree.at(boot.path), boot.target)
    done("stand alone")
    if leaving.job is not None:
        problem = steps.carry_out(leaving.job, tree, systemctl, done)
        if problem:
            return problem
        if not leaving.keep:
            adopt.forget(tree, systemctl)
            systemctl.reset_failed(sorted(name for name, now in leaving.found.units.items() if now.active == "failed"))
    if leaving.keep:
        for replica in leaving.found.manifest.replicas if leaving.found.manifest else ():
            publish.forget(tree.root, replica.name)  # nobody writes them any more, and values outlive their writer
    proven.sweep(tree, systemctl)
    if not leaving.keep:
        _end_slices(tree, systemctl)
    _purge(leaving, tree)
    done("purge")
    return None


def _end_slices(tree: Tree, systemctl: Systemctl) -> None:
    """systemd keeps a slice that it made by itself when nothing is in it any more. To stop one ends what is in it."""
    for name in (programs.PROBE_SLICE, programs.ALL_SLICE):
        if not cgroups.pids(tree.root, name, name):
            systemctl.stop([name])


def _purge(leaving: Leaving, tree: Tree) -> None:
    """What is nearsocket's own, whatever is in it. A freeze that somebody wrote beside it stays, and what engines that run on
    have in /run goes with the boot."""
    for path in _OWN:
        _remove(tree, path)
    folders.take_away(tree, ["/etc/nearsocket"])
    run = tree.lock.parent
    for entry in sorted(run.iterdir()) if run.is_dir() and not leaving.keep else []:
        if entry != tree.lock:
            _remove(tree, f"/{entry.relative_to(tree.root)}")
    made = folders.made(tree)
    folders.take_away(tree, [path for path in made if not path.startswith("/var")])
    _remove(tree, _STATE)
    folders.take_away(tree, made)


def _remove(tree: Tree, path: str) -> None:
    at = tree.at(path)
    if at.is_dir() and not at.is_symlink():
        mounting.release(tree, at)
        disk.remove_tree(at)
    else:
        disk.remove(at)


def listed(leaving: Leaving) -> tuple[Change, ...]:
    """The changes in their order. The empty generation on the way is no change that anybody sees."""
    alone_ = [Change(Kind.FILE, Action.ADD, entry.path, "stands alone") for entry in leaving.files]
    alone_ += [Change(Kind.LINK, Action.CHANGE, boot.path, "stands alone") for boot in leaving.boots]
    shown = work.listed(leaving.todo, 0, leaving.found) if leaving.job else ()
    own = [Change(Kind.FILE, Action.REMOVE, path) for path in leaving.own]
    return (*alone_, *(change for change in shown if change.kind is not Kind.GENERATION), *own)


def notes(leaving: Leaving, tree: Tree) -> tuple[str, ...]:
    """What goes with it that somebody may want: files that were changed by hand and kept aside."""
    aside = tree.at(f"{_STATE}/aside")
    kept = sorted(str(path.relative_to(aside)) for path in aside.rglob("*") if path.is_file()) if aside.is_dir() else []
    taken = [one.handover.old for one in adopt.records(tree).values()]
    told = (
        "stays out of the boot: its replica runs on" if leaving.keep else "is as it was before it was taken over, and not started"
    )
    return (
        *leaving.todo.notes,
        *(f"{old} {told}" for old in taken),
        *(f"goes with it: {path}, once changed by hand and kept aside" for path in kept),
    )


def _empty(host: str) -> Manifest:
    return Manifest(host, "", (), (), (), (), {}, (), Record("", "", ""))


def _starts(found: State) -> dict[str, start.Start]:
    names = [replica.name for replica in found.manifest.replicas] if found.manifest else []
    records = {name: found.contents.get(f"replicas/{name}.json") for name in names}
    for name, content in records.items():
        if content is None:
            raise NearsocketError(
                f"expected the start record of replica {name}, found none", "run deploys/site.py: it puts all right"
            )
    return {name: start.from_json(content.decode("utf-8", "replace")) for name, content in records.items() if content is not None}
