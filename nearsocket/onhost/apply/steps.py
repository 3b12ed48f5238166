"""The steps of an apply, in an order that a cut can fall into anywhere.

Before the switch: journal, files kept aside, program, generation, replicas taken out, links where nothing stands. The switch is
one rename. After it: links replaced and removed, reload, kernel settings, restarts, starts, stops; the journal has what is left.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.generation import Generation
from nearsocket.model.text import in_words
from nearsocket.onhost.apply import adopt, build, disk, folders, images, journal, proven, replicas, values
from nearsocket.onhost.apply.journal import Journal
from nearsocket.onhost.apply.pathprobe import Prober
from nearsocket.onhost.apply.state import State
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.apply.units import After, bring_up
from nearsocket.onhost.apply.work import Work
from nearsocket.onhost.collect.command import CommandTimeout


class Interrupted(Exception):
    """A step failed. `wrote`: the new generation is in force, and the next run completes it."""

    def __init__(self, message: str, hint: str, wrote: bool) -> None:
        super().__init__(message)
        self.message, self.hint, self.wrote = message, hint, wrote


@dataclass(frozen=True)
class Job:
    """One apply's work: what is to be in force under which number (`there`: its folder exists), by which program. `prober`: what
    proves the paths that are due (None: nothing does). `after`: units start one after another, and what it says of one that is up
    stops those behind it.
    """

    todo: Work
    found: State
    generation: Generation
    number: int
    there: bool
    program: bytes
    prober: Optional[Prober] = None
    after: Optional[After] = None


def carry_out(job: Job, tree: Tree, systemctl: Systemctl, done: Callable[[str], None]) -> Optional[str]:
    """All steps; what a unit failed with, or None. `done` hears of each step's end. Raises Interrupted."""
    todo = job.todo
    added = (*(link.path for link in todo.links_add), *(job.found.void.links_added if job.found.void else ()))
    builds = todo.build and not job.there
    plan = Journal(
        job.number,
        builds,
        added,
        todo.links_drop,
        todo.reload,
        todo.restart,
        todo.stop,
        earlier=job.found.unfinished,
        boot=job.found.boot,
    )
    try:
        _before(job, tree, systemctl, plan, done)
    except (OSError, CommandTimeout) as error:
        raise Interrupted(in_words(error), _undo(job, tree, plan), wrote=False) from None
    try:
        if todo.build:
            disk.link(tree.current, f"generations/{job.number}")
        done("switch")
        return _after(job, tree, systemctl, dataclasses.replace(plan, earlier=None), done)
    except (OSError, CommandTimeout) as error:
        switched = tree.number() == job.number
        hint = "the next run completes it" if switched else "the old generation is in force; run this again"
        raise Interrupted(in_words(error), hint, wrote=switched) from None


def _before(job: Job, tree: Tree, systemctl: Systemctl, plan: Journal, done: Callable[[str], None]) -> None:
    todo = job.todo
    discard(job.found, tree)
    proven.sweep(tree, systemctl)
    journal.write(tree, plan)
    folders.note(tree, [tree.at(link.path).parent for link in (*todo.links_add, *todo.links_fix)])
    _keep_aside(job, tree)
    if todo.program:
        disk.make_folders(tree.program.parent)
        disk.replace(tree.program, job.program, 0o755)
    images.pull(systemctl, todo.images)
    if plan.builds:
        build.build(tree, job.generation, job.number)
    done("build")
    for replica in todo.removals:
        replicas.take_out(tree, systemctl, replica)
    done("removals")
    for link in todo.links_add:
        _link(tree, link.path, link.target)


def _after(job: Job, tree: Tree, systemctl: Systemctl, plan: Journal, done: Callable[[str], None]) -> Optional[str]:
    todo = job.todo
    for link in todo.links_fix:
        _link(tree, link.path, link.target)
    for path in todo.links_drop:
        if disk.remove(tree.at(path)):
            disk.sync_folder(tree.at(path).parent)
    adopt.begin(tree, systemctl, todo.handovers)
    if todo.reload:
        systemctl.reload()
        plan = dataclasses.replace(plan, reload=False)
        journal.write(tree, plan)
    done("reload")
    values.put(tree, todo.settings)
    adopt.watch(systemctl, todo.handovers)
    problem = adopt.take(systemctl, todo.handovers)
    if problem is None:
        problem, plan = bring_up(tree, systemctl, todo, plan, job.prober, job.after)
    if problem and todo.handovers:
        problem = "; ".join(filter(None, [problem, adopt.put_back(tree, systemctl, todo.handovers)]))
    done("units")
    if problem is None:
        journal.clear(tree)
    build.prune(tree)
    return problem


def discard(found: State, tree: Tree) -> None:
    """Remove what cut applies left: half-written files, a generation without its switch. Links go as `links_drop`."""
    links = {tree.at(path).parent for path in found.links}
    for folder in (tree.journal.parent, tree.generations, tree.program.parent, tree.values.parent, *sorted(links)):
        disk.sweep(folder)
    if found.void and found.void.builds:
        build.drop(tree, found.void.to)


def _link(tree: Tree, path: str, target: str) -> None:
    disk.make_folders(tree.at(path).parent)
    disk.link(tree.at(path), target)


def _undo(job: Job, tree: Tree, plan: Journal) -> str:
    """Take back what was made before the switch, and put back the journal of an earlier cut. What remains is told."""
    try:
        ours = {link.path for link in job.found.manifest.links} if job.found.manifest else set()
        for path in plan.links_added:
            if path not in ours and tree.at(path).is_symlink():
                disk.remove(tree.at(path))
        if plan.builds:
            build.drop(tree, job.number)
        if job.found.unfinished:
            journal.write(tree, job.found.unfinished)
        else:
            journal.clear(tree)
    except OSError as error:
        return f"the old generation is in force; leftovers stay until the next run ({in_words(error)})"
    return "the old generation is in force" if tree.number() else "nothing of it is in force"


def _keep_aside(job: Job, tree: Tree) -> None:
    todo, found = job.todo, job.found
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
