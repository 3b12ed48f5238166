"""Which of the running processes make up one engine instance.

Four signs tie processes together:
1. they map the same nccl- file (a proxy pool has one owner and ties nobody);
2. one started the other;
3. they are copies of one command with the same parent (torchrun, mpirun);
4. they share a container;
5. outside containers, they share a unit.
Signs 3 to 5 do not join groups that stand apart: two that each share nccl- files, none of them in common, or that each
have a server process. So two servers in one container stay two. Groups with files whose rank numbers fill each other's gaps
are parts of one (a ring that uses shared memory between some of its ranks only).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nearsocket.model.host import Buffer, BufferRole, Process

#: These hold GPU memory for others or draw a screen (comm, cut to 15 characters by the kernel).
SERVANTS = frozenset({"nvidia-cuda-mps", "nvidia-persiste", "nv-hostengine", "Xorg", "Xwayland", "gnome-shell"})


@dataclass
class Group:
    """Processes that belong together, so far; `files` are the nccl- files that tie."""

    members: list[Process] = field(default_factory=list)
    files: set[str] = field(default_factory=set)

    def add(self, other: Group) -> None:
        """Take over the other's processes and files."""
        self.members += other.members
        self.files |= other.files

    @property
    def gpus(self) -> frozenset[str]:
        """The GPUs of all members."""
        return frozenset(gpu for process in self.members for gpu in process.gpus)

    @property
    def ranks(self) -> frozenset[int]:
        """The rank numbers that are known."""
        return frozenset(process.rank for process in self.members if process.rank is not None)

    @property
    def has_server(self) -> bool:
        """Whether the engine's first process is here: the one that kept its command line."""
        return any(process.engine is not None and "::" not in process.title for process in self.members)

    @property
    def whole(self) -> bool:
        """Whether it can be an instance of its own beside others in one container."""
        return bool(self.files) or self.has_server


def tying_files(buffers: Iterable[Buffer]) -> frozenset[str]:
    """The identities of the files that more than one process maps; a proxy pool is one process's own."""
    return frozenset(b.identity for b in buffers if len(b.pids) > 1 and b.role is not BufferRole.PROXY_POOL)


def instances(processes: Sequence[Process], tying: frozenset[str]) -> tuple[tuple[Process, ...], ...]:
    """The processes of each instance, both in order of process number; those without any sign of one are left out."""
    part = [p for p in processes if (p.engine or p.buffers or p.gpus or p.gpu_bytes) and p.comm not in SERVANTS]
    places: dict[tuple[str, str], list[Group]] = {}
    for group in _with_copies(_tied(part, tying)):
        places.setdefault(_place(group), []).append(group)
    found = [group for (kind, _), groups in places.items() for group in (_gathered(groups) if kind else groups)]
    ordered = (tuple(sorted(group.members, key=lambda p: p.pid)) for group in found)
    return tuple(sorted(ordered, key=lambda members: members[0].pid))


def _tied(part: Sequence[Process], tying: frozenset[str]) -> list[Group]:
    """Groups by signs 1 and 2."""
    leader = {process.pid: process.pid for process in part}

    def find(pid: int) -> int:
        while leader[pid] != pid:
            leader[pid] = leader[leader[pid]]
            pid = leader[pid]
        return pid

    first: dict[str, int] = {}
    for process in part:
        for file in {b.identity for b in process.buffers} & tying:
            leader[find(process.pid)] = find(first.setdefault(file, process.pid))
        if process.ppid in leader:
            leader[find(process.pid)] = find(process.ppid)
    groups: dict[int, Group] = {}
    for process in part:
        files = {b.identity for b in process.buffers} & tying
        groups.setdefault(find(process.pid), Group()).add(Group([process], files))
    return list(groups.values())


def _with_copies(groups: Sequence[Group]) -> list[Group]:
    """The groups, those joined that sign 3 ties; an engine's own processes have a parent that ties them."""
    found: list[Group] = []
    first: dict[tuple[int, tuple[str, ...]], Group] = {}
    for group in groups:
        signs = [(p.ppid, p.command) for p in group.members if p.ppid > 1 and p.engine is None and p.command]
        fitting = next((first[sign] for sign in signs if sign in first and not _apart(first[sign], group)), None)
        if fitting is None:
            found.append(group)
        else:
            fitting.add(group)
        for sign in signs:
            first.setdefault(sign, fitting or group)
    return found


def _place(group: Group) -> tuple[str, str]:
    """The container that the group is in, else its unit, else nothing that it shares with others."""
    for process in group.members:
        if process.container:
            return ("container", process.container)
    return next((("unit", process.unit) for process in group.members if process.unit), ("", ""))


def _gathered(groups: Sequence[Group]) -> list[Group]:
    """The groups of one container or unit, joined unless they stand apart."""
    found: list[Group] = []
    for group in sorted(groups, key=lambda g: (not g.whole, min(p.pid for p in g.members))):
        fitting = [other for other in found if not _apart(other, group)]
        if not group.whole and len(found) > 1:
            # Which of several servers a loose process belongs to, only its GPU can tell; a helper without one is left out.
            fitting = [other for other in fitting if other.gpus & group.gpus]
            if not fitting and not group.gpus:
                continue
        if fitting:
            fitting[0].add(group)
        else:
            found.append(group)
    return found


def _apart(a: Group, b: Group) -> bool:
    if a.has_server and b.has_server:
        return True
    if not (a.files and b.files):
        return False
    return not (a.ranks and b.ranks and a.ranks.isdisjoint(b.ranks))
