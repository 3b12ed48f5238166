"""Before anything changes: the host as it is, kept; then replicas drained and stopped, one after another."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Optional

from nearsocket.model import near
from nearsocket.model.driver import caches, family
from nearsocket.model.driver.orders import Order, Phase, State
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import entries
from nearsocket.onhost.apply import disk, freeze, journal
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.whole import collect
from nearsocket.onhost.reprovision import kept
from nearsocket.onhost.reprovision.apt import Apt
from nearsocket.onhost.reprovision.checks import Found

_SNAPSHOT_S = 60.0
_RUNS = ("active", "activating", "reloading")


def begin(
    tree: Tree, apt: Apt, systemctl: Systemctl, order: Order, found: Found, here: Optional[Manifest]
) -> tuple[State, tuple[str, ...]]:
    """Write down what is to be known later, before the first change; notes. Raises NearsocketError where it is frozen, OSError."""
    overridden = freeze.pass_or_refuse(tree, order.freeze, order.override_freeze, order.by)
    snapshot = collect(_SNAPSHOT_S, root=tree.root)
    disk.make_folders(tree.at(kept.SNAPSHOT).parent)
    disk.replace(tree.at(kept.SNAPSHOT), snapshot.to_json().encode("ascii"), 0o600)
    names = [replica.unit for replica in here.replicas] if here else []
    states = systemctl.show(names)
    # What an upgrade holds ran before it, as far as anybody knows: its record is gone or cannot be read where one begins here.
    held = kept.held(tree)
    waits = {replica.unit for replica in here.replicas if replica.name in held} if here else set()
    running = tuple(name for name in names if states[name].active in _RUNS or name in waits)
    members = {package.name: package.version for package in (*found.family.members, *found.family.prebuilt)}
    state = State(
        id=order.id,
        by=order.by,
        begun_at=kept.now(),
        frm=found.host.driver.module_loaded or found.family.version or "",
        to=order.to,
        phase=Phase.STOPPING,
        packages=members if not found.already else {},
        holds=tuple(sorted(apt.holds() & family.of(apt.installed()).names)),
        boot_id=journal.this_boot(tree),
        units=running,
        caches=_caches(tree, found.host, here),
        gpus=len(near.usable(found.host)),
        words=found.wanted.words,
    )
    return kept.write(tree, state), (overridden,) if overridden else ()


def stop(tree: Tree, systemctl: Systemctl, state: State, replicas: Sequence[str]) -> State:
    """Keep every replica from starting, then drain and stop each that runs (its unit's ExecStop does both). One that does not run
    is held too: a boot would start it. Raises NearsocketError, OSError."""
    kept.hold(tree, replicas, under_way(state))
    all_down(systemctl, state.units)
    return kept.write(tree, state.at(Phase.STOPPED))


def all_down(systemctl: Systemctl, units: Sequence[str]) -> None:
    """Drain and stop one after another. Raises NearsocketError where one does not stop: it works on with the driver."""
    for unit in units:
        problem = systemctl.stop([unit])
        if problem:
            raise NearsocketError(f"expected {unit} to stop, found: {problem}", f"systemctl status {unit}")


def with_running(systemctl: Systemctl, state: State, here: Optional[Manifest]) -> State:
    """The same, and of the units that are to come up again those too that a deploy brought in since it was begun.

    Raises OSError, CommandTimeout.
    """
    names = [replica.unit for replica in here.replicas] if here else []
    states = systemctl.show(names)
    runs = [name for name in names if states[name].active in _RUNS]
    return dataclasses.replace(state, units=tuple(dict.fromkeys((*state.units, *runs))))


def under_way(state: State) -> str:
    """Why replicas are held, for whoever meets that."""
    return f"a driver upgrade to {state.to} is under way, begun by {state.by} at {state.begun_at}"


def _caches(tree: Tree, host: Host, here: Optional[Manifest]) -> tuple[str, ...]:
    """Folders of the host that replicas' containers may write to and that hold what engines compiled."""
    found: dict[str, None] = {}
    for replica in here.replicas if here else ():
        box = next((entry for entry in entries(host, "containers") if entry.get("name") == replica.container), {})
        read_only = set(box.get("read_only") or ())
        mounts = [
            (str(mount.get("source")), str(mount.get("destination")))
            for mount in box.get("mounts") or ()
            if mount.get("type") in ("bind", "volume") and mount.get("destination") not in read_only
        ]
        found.update(dict.fromkeys(caches.folders(mounts, _environ(tree, replica.name))))
    return tuple(found)


def _environ(tree: Tree, replica: str) -> dict[str, str]:
    """The replica's environment as its file has it; only the variables that move caches are looked at."""
    try:
        text = disk.read(tree.current / "env" / f"{os.path.basename(replica)}.env", 1 << 20).decode("utf-8", "replace")  # noqa: PTH119
    except OSError:
        return {}
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line and not line.startswith("#"))
