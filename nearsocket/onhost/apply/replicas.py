"""A replica's way out, and what stands in the way of a new one: its unit, its container, its mount, its port."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Optional

from nearsocket.model import places
from nearsocket.model.errors import NearsocketError
from nearsocket.model.generation import Manifest, ReplicaEntry
from nearsocket.model.places import replica_folder
from nearsocket.model.text import one_line
from nearsocket.onhost.apply import disk, mounting, proven
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import CommandTimeout
from nearsocket.onhost.verify import publish

_ASK_S = 30.0
_ESTABLISHED, _LISTENING = "01", "0A"


def take_out(tree: Tree, systemctl: Systemctl, replica: ReplicaEntry) -> None:
    """Drain and stop it (its unit's ExecStop does both), then see that container, mount and runtime folder are gone.

    Each step may have been done before. Raises OSError, one line, where something stays.
    """
    problem = systemctl.stop([replica.unit])
    if problem:
        raise OSError(problem)
    output = systemctl.run([replica.runtime, "rm", "--force", "--volumes", replica.container], replica.stop_s + _ASK_S)
    if output.code and _container(systemctl, replica):
        raise OSError(f"{replica.runtime} rm {replica.container}: {output.error or f'exit code {output.code}'}")
    if replica.mount and replica.mount_point:
        problem = systemctl.stop([replica.mount])
        if problem or mounting.mounted(tree, replica.mount_point):
            raise OSError(problem or f"expected {replica.mount_point} to be released, found it mounted")
        try:
            tree.at(replica.mount_point).rmdir()
        except FileNotFoundError:
            pass
    problem = systemctl.stop([replica.slice])
    if problem:
        raise OSError(problem)
    folder = tree.at(replica_folder(replica.name))
    mounting.release(tree, folder)
    disk.remove_tree(folder)
    publish.forget(tree.root, replica.name)
    proven.forget(tree, systemctl, replica.name)
    for path in (places.verdict_file(replica.name), places.history_file(replica.name)):
        disk.remove(tree.at(path))


def refuse_taken(
    tree: Tree, systemctl: Systemctl, new: Manifest, old: Optional[Manifest], adopting: frozenset[str] = frozenset()
) -> None:
    """Raises NearsocketError where a container or a port of a replica that is new here is another's, with the holder's name.

    `adopting`: replicas whose port the engine has that they take over from.
    """
    ours = {replica.name: replica for replica in old.replicas} if old else {}
    held_by_us = {replica.port for replica in ours.values()}
    for replica in new.replicas:
        if replica.name not in ours and _container(systemctl, replica):
            raise NearsocketError(
                f"expected no container {replica.container} of anybody else's, found one in {replica.runtime}",
                f"see it with: {replica.runtime} inspect {replica.container}; remove or rename it, then run this again",
            )
        if replica.port not in held_by_us and replica.name not in adopting:
            holder = listener(tree, replica.port)
            if holder:
                raise NearsocketError(
                    f"expected port {replica.port} to be free for replica {replica.name}, found {holder} listening",
                    "stop it, or give the replica another port",
                )


def _container(systemctl: Systemctl, replica: ReplicaEntry) -> bool:
    try:
        output = systemctl.run([replica.runtime, "container", "inspect", "--format", "{{.Name}}", replica.container], _ASK_S)
    except (OSError, CommandTimeout):
        return False  # a runtime that does not answer starts nothing either; the unit's start will say so
    return output.code == 0 and bool(output.text.strip())


def listener(tree: Tree, port: int) -> Optional[str]:
    """Who listens on that TCP port: `process 12 (name)`, or just that somebody does; None where nobody does."""
    inodes = {f"socket:[{inode}]" for inode in _sockets(tree, port, _LISTENING)}
    return _holder(tree, inodes) if inodes else None


def established(tree: Tree, port: int) -> int:
    """How many open TCP connections have that port as their own: a server's side of them."""
    return len(_sockets(tree, port, _ESTABLISHED))


def _sockets(tree: Tree, port: int, state: str) -> list[str]:
    """The inodes of this host's TCP sockets on that port in that state (proc(5), net/tcp)."""
    inodes = []
    for table in ("tcp", "tcp6"):
        try:
            lines = tree.at(f"/proc/net/{table}").read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == state and int(words[1].rpartition(":")[2], 16) == port:
                inodes.append(words[9])
    return inodes


def _holder(tree: Tree, sockets: set[str]) -> str:
    for process in sorted(path for path in tree.at("/proc").iterdir() if path.name.isdigit()):
        if any(link in sockets for link in _links(process / "fd")):
            try:
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                name = "its name is not known"
            return f"process {process.name} ({one_line(name, 40)})"
    return "somebody (no process that can be seen)"


def _links(folder: Path) -> Iterable[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            yield os.fspath(entry.readlink())
        except OSError:
            continue
