"""What changes from one generation to the next: files, units to start, restart or take out, whether systemd must reload. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.generation import File, Manifest, Record, ReplicaEntry, UnitEntry
from nearsocket.model.programs import CURRENT


@dataclass(frozen=True)
class Difference:
    """Paths and unit names, each sorted. `reload`: a unit or its link changed, so systemd must read its units anew.

    `start`: new units; `restart`: units of both whose files changed; `stop`: units that are gone. `remount`: mounts to be stopped
    while their replica is, so that the next start mounts them anew. `removed_replicas` need the user's leave (`allow_removals`).
    `reapply`: files for sysctl or systemd-tmpfiles. `sysctl_gone`: keys to be put back.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    links_added: tuple[str, ...] = ()
    links_changed: tuple[str, ...] = ()
    links_removed: tuple[str, ...] = ()
    reload: bool = False
    start: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    remount: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    removed_replicas: tuple[ReplicaEntry, ...] = ()
    reapply: tuple[str, ...] = ()
    sysctl_gone: tuple[str, ...] = ()
    same: bool = True


def difference(old: Optional[Manifest], new: Manifest) -> Difference:
    """From `old` (None: nothing was there) to `new`. Equal digests are no change at all."""
    if old is not None and old.digest == new.digest:
        return Difference()
    before = _by_path(old.files) if old else {}
    after = _by_path(new.files)
    added, removed = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    changed = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    links_before = {link.path: link for link in old.links} if old else {}
    links_after = {link.path: link for link in new.links}
    links_added = sorted(links_after.keys() - links_before.keys())
    links_removed = sorted(links_before.keys() - links_after.keys())
    links_changed = sorted(path for path in links_before.keys() & links_after.keys() if links_before[path] != links_after[path])
    touched = {*added, *removed, *changed}
    moved = [links_after[p] for p in (*links_added, *links_changed)] + [links_before[p] for p in links_removed]
    targets = {f"{CURRENT}/{path}" for path in touched}
    behind = [link for link in (*links_before.values(), *links_after.values()) if link.target in targets]
    units_before = {unit.name: unit for unit in old.units} if old else {}
    units_after = {unit.name: unit for unit in new.units}
    started = {name for name, unit in units_after.items() if unit.start}
    names = {replica.name for replica in new.replicas}
    both = units_before.keys() & units_after.keys()
    return Difference(
        tuple(added),
        tuple(changed),
        tuple(removed),
        tuple(links_added),
        tuple(links_changed),
        tuple(links_removed),
        reload=any(link.unit for link in (*moved, *behind)),
        start=tuple(sorted(started - units_before.keys())),
        restart=tuple(sorted(n for n in started & both if _changed(units_before[n], units_after[n], touched))),
        remount=tuple(sorted(n for n in both if n.endswith(".mount") and _changed(units_before[n], units_after[n], touched))),
        stop=tuple(sorted(units_before.keys() - units_after.keys())),
        removed_replicas=tuple(r for r in old.replicas if r.name not in names) if old else (),
        reapply=tuple(path for path in new.reapply if path in touched),
        sysctl_gone=tuple(sorted(old.sysctl.keys() - new.sysctl.keys())) if old else (),
        same=False,
    )


def _by_path(files: tuple[File, ...]) -> Mapping[str, File]:
    return {entry.path: entry for entry in files}


def _changed(old: UnitEntry, new: UnitEntry, touched: set[str]) -> bool:
    return bool(touched & {*old.depends, *new.depends}) or old.depends != new.depends


def older(new: Record, current: Record) -> Optional[str]:
    """Why `new` would take the host back to an older commit of the inventory; None where it would not, or nothing says."""
    if new.commit is None or current.commit is None or new.commit == current.commit:
        return None
    if new.committed_at is None or current.committed_at is None or new.committed_at >= current.committed_at:
        return None
    return f"the host has commit {current.commit[:12]} of {current.committed_at}, this is {new.commit[:12]} of {new.committed_at}"
