"""Plans for the hosts of an inventory, each read once or taken from a folder of snapshots, compared with what is there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import nearsocket
from nearsocket.control import snapshots, workers
from nearsocket.control.audit import collect, here
from nearsocket.control.render import render
from nearsocket.control.target import Target
from nearsocket.control.targets import SNAPSHOT_SUFFIX
from nearsocket.control.transport import TransportError
from nearsocket.control.transport.process import Children
from nearsocket.model.changes import difference
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.generation import Generation, Manifest, Record, from_json
from nearsocket.model.host import Host
from nearsocket.model.plan.make import plan
from nearsocket.model.plan.report import HostPlan
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.text import fault
from nearsocket.model.verdicts.reading import text, why

#: A plan is for reading: who made it and when is set by the apply.
NO_RECORD = Record("", "", nearsocket.__version__)


def plans(
    targets: Sequence[Target], folder: Path | None, templates: Path, timeout_s: float, parallel: int
) -> tuple[tuple[HostPlan, Generation | None], ...]:
    """The plan of each target in their order, with the generation where it can be made.

    A host that cannot be read is a plan that says so. `folder` has `<host>.snapshot.json` of each; no host is contacted then.
    Raises UsageError for targets without settings and for a snapshot that is missing.
    """
    for target in targets:
        if target.settings is None:
            raise UsageError(
                f"{target.name}: expected `serve`, `replicas` or `tune` for this host, found none",
                "nearsocket plan takes an inventory that says what is to be served: docs/fleet.md",
            )
    saved = {target.name: _saved(target, folder) for target in targets} if folder is not None else {}
    children = Children()
    made: dict[int, tuple[HostPlan, Generation | None]] = {}

    def act(at: int) -> tuple[HostPlan, Generation | None]:
        return _one(targets[at], saved.get(targets[at].name), timeout_s, children, templates)

    try:
        with closing(workers.each(len(targets), act, parallel)) as planned_hosts:
            made.update(planned_hosts)
    except BaseException:
        children.end_all()
        raise
    return tuple(made[at] for at in range(len(targets)))


def _saved(target: Target, folder: Path) -> Snapshot:
    path = folder / snapshots.file_name(target.name)
    if not path.is_file():
        raise UsageError(
            f"{path}: expected the snapshot of {target.name}, found no such file", f"nearsocket audit INVENTORY --save {folder}"
        )
    return snapshots.from_file(path)


def _one(
    target: Target, saved: Snapshot | None, timeout_s: float, children: Children, templates: Path
) -> tuple[HostPlan, Generation | None]:
    """One host's plan; whatever is odd about that host is a failed plan, and the others are planned."""
    try:
        snapshot = saved or collect(target, timeout_s, children)
        return planned(target, snapshots.parsed(snapshot, target.near), templates)
    except TransportError as error:
        return _failed(target, f"the host could not be read: {error.message}", error.hint), None
    except NearsocketError as error:
        return _failed(target, error.message, error.hint), None
    except Exception as error:
        return _failed(target, f"expected to plan for this host, found: {fault(error)}", here(error).hint), None


def _failed(target: Target, reason: str, hint: str | None) -> HostPlan:
    return HostPlan(target.name, None, None, None, reason, hint)


def planned(target: Target, host: Host, templates: Path) -> tuple[HostPlan, Generation | None]:
    """The plan of a host that was read, its generation and what changes there. Pure but for the templates."""
    if target.settings is None:
        raise UsageError(f"{target.name}: expected settings, found none")
    made = plan(host, target.settings)
    if made.refused:
        return HostPlan(target.name, made, None, None), None
    try:
        generation = render(made, NO_RECORD, templates)
    except NearsocketError as error:
        return HostPlan(target.name, made, None, None, error.message, error.hint), None
    there, reason = in_force(host)
    changes = difference(there, generation.manifest) if reason is None else None
    return HostPlan(target.name, made, generation.manifest, changes, None, None, reason), generation


def in_force(host: Host) -> tuple[Manifest | None, str | None]:
    """The manifest on the host (None: nothing is managed there), and why it is not known where it is not."""
    source = host.source("generation")
    if source.ok:
        try:
            return from_json(text(host, "generation")), None
        except NearsocketError as error:
            return None, error.message
    return None, None if source.status.value == "absent" and "generation" in host.sources else why(host, "generation")


def write(generation: Generation, folder: Path, host: str) -> Path:
    """Write the generation's files and manifest under `folder/<host>/`; those of an earlier plan that are gone are removed.

    Raises NearsocketError where that folder holds something else, and where it cannot be written.
    """
    root = folder / snapshots.file_name(host).removesuffix(SNAPSHOT_SUFFIX)
    wanted = files(generation)
    try:
        stale = [path for path in existing(root) if path not in wanted]
        if stale and not (root / "manifest.json").is_file():
            raise NearsocketError(
                f"{root}: expected an empty folder or one of an earlier plan, found {stale[0]}", "choose another folder"
            )
        for path, content in wanted.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        for path in stale:
            (root / path).unlink()
    except OSError as error:
        raise NearsocketError(f"{root}: expected to write the plan's files there, found: {error.strerror}") from None
    return root


def differs(generation: Generation, folder: Path, host: str) -> tuple[str, ...]:
    """The paths under `folder/<host>/` that are not what the plan renders: missing, other, or too many."""
    root = folder / snapshots.file_name(host).removesuffix(SNAPSHOT_SUFFIX)
    wanted = files(generation)
    there = set(existing(root))
    other = {path for path in there & wanted.keys() if (root / path).read_bytes() != wanted[path]}
    return tuple(sorted(other | (wanted.keys() ^ there)))


def files(generation: Generation) -> dict[str, bytes]:
    """What is written for review: the files and the manifest."""
    return {**generation.contents, "manifest.json": generation.manifest.to_json().encode()}


def existing(root: Path) -> list[str]:
    """The files under that folder, as relative paths."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
