"""/proc/PID/numa_maps as values: one mapping a line, and the nccl- files merged over lines and processes.

`ADDRESS POLICY [file=PATH|heap|stack] [huge] [anon=] [dirty=] [mapped=] ... [Nnode=pages]... [kernelpagesize_kB=]`, as
show_numa_map() in fs/proc/task_mmu.c prints it. A policy may hold spaces, so the policy is all text up to the first known
field. A mapping without pages ends after its name. Pasted text may hold several processes, each behind a header, behind
`grep -H`'s prefix, or with nothing between them but an address that goes down.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from nearsocket.model.host import Buffer, BufferRole
from nearsocket.model.parsers.mountinfo import unescape
from nearsocket.model.parsers.text import clean
from nearsocket.model.roles import LARGE_BYTES, PAGE_BYTES, role_of

_START = re.compile(
    r"(?:^|(?<=[\s:>|]))(?P<address>[0-9a-f]{8,16})[ \t]+"
    r"(?=(?:default|local|bind|prefer(?:red)?|interleave|weighted interleave)\b)"
)
_FIELD = re.compile(
    r"(?:file=.*|heap|stack(?::\d+)?|huge|\((?:deleted)\)|N\d+=\d*|(?:anon|dirty|mapped|mapmax|swapcache|active|writeback|kernelpagesize_kB)=\d*)\Z"
)
_NODE = re.compile(r"N(\d{1,4})=(\d{1,12})\Z")
_COUNT = re.compile(r"(anon|dirty|mapped|kernelpagesize_kB)=(\d{1,12})\Z")
_PID = re.compile(r"/proc/(\d{1,10})/(?:task/\d+/)?numa_maps")
_DELETED = " (deleted)"
#: mkstemp's six characters anywhere, or any nccl- name in a folder called shm (before 2.12: nccl-shm-recv-...).
_NCCL = re.compile(r"(?:^|/)nccl-[A-Za-z0-9]{6}\Z|(?:^|/)shm/nccl-[^/]+\Z")


@dataclass(frozen=True)
class MapLine:
    """One line: `process` counts the processes of the text from 0, `pages` maps node to pages of `page_bytes`.

    `whole` is false where the line has counts but not its end: it was cut, and what it says on nodes is not to be trusted.
    """

    number: int
    text: str
    process: int
    pid: Optional[int]
    address: int
    policy: str
    file: Optional[str]
    deleted: bool
    pages: Mapping[int, int]
    page_bytes: int
    whole: bool

    @property
    def by_node(self) -> dict[int, int]:
        """Bytes on each node."""
        return {node: count * self.page_bytes for node, count in self.pages.items() if count}

    @property
    def is_nccl(self) -> bool:
        """Whether the mapping is of a file that NCCL made."""
        return bool(self.file and _NCCL.search(self.file))


@dataclass(frozen=True)
class NumaMaps:
    """A numa_maps text. `buffers` are the nccl- files, each once; `lines_of` maps a file to its mappings."""

    mappings: tuple[MapLine, ...]
    buffers: tuple[Buffer, ...]
    policies: tuple[str, ...]

    def lines_of(self, file: str) -> tuple[MapLine, ...]:
        """The mappings of that file."""
        return self._by_file.get(file, ())

    @cached_property
    def _by_file(self) -> Mapping[str, tuple[MapLine, ...]]:
        """Grouped once: a text may hold as many files as lines."""
        grouped: dict[str, list[MapLine]] = {}
        for mapping in self.mappings:
            if mapping.file is not None:
                grouped.setdefault(mapping.file, []).append(mapping)
        return {file: tuple(mappings) for file, mappings in grouped.items()}

    @property
    def cut(self) -> tuple[MapLine, ...]:
        """The lines of nccl- files that were cut."""
        return tuple(mapping for mapping in self.mappings if mapping.is_nccl and not mapping.whole)


def looks_like(text: str) -> int:
    """How many lines of the text are numa_maps lines."""
    return sum(1 for line in text.splitlines() if _START.search(clean(line)))


def parse(text: str) -> NumaMaps:
    """Read a text. Lines that are no mapping only separate processes; never raises."""
    mappings = tuple(_mappings(text))
    policies = tuple(dict.fromkeys(mapping.policy for mapping in mappings if mapping.policy))
    return NumaMaps(mappings, tuple(merge(mappings)), policies)


def _mappings(text: str) -> Iterable[MapLine]:
    process, last, fresh = 0, -1, False
    pid: Optional[int] = None
    last_pid: Optional[int] = None
    lines = [clean(line) for line in text.splitlines()]
    sized = any("kernelpagesize_kB=" in line for line in lines)
    for number, line in enumerate(lines, 1):
        start = _START.search(line)
        if not start:
            if line.strip() and not all(_FIELD.match(word) for word in line.split()):  # a header; not a wrapped line's rest
                named = _PID.search(line)
                pid, fresh = int(named[1]) if named else None, True
            continue
        prefix = _PID.search(line[: start.start()])
        own = int(prefix[1]) if prefix else pid
        address = int(start["address"], 16)
        if last >= 0 and (fresh or address <= last or own != last_pid):
            process += 1
        last, last_pid, fresh = address, own, False
        yield _mapping(number, line, process, pid, address, line[start.end() :], sized)


def _mapping(number: int, line: str, process: int, pid: Optional[int], address: int, rest: str, sized: bool) -> MapLine:
    tokens = rest.split()
    first = next((i for i, token in enumerate(tokens) if _FIELD.match(token)), len(tokens))
    policy = " ".join(tokens[:first])
    pages: dict[int, int] = {}
    counts: dict[str, int] = {}
    file, deleted, odd = None, False, False
    for word in tokens[first:]:
        node, count = _NODE.match(word), _COUNT.match(word)
        if word.startswith("file="):
            file = unescape(word[len("file=") :])
            deleted = file.endswith(_DELETED)
            file = file.removesuffix(_DELETED) if deleted else file
        elif word == "(deleted)":
            deleted = True
        elif node:
            pages[int(node[1])] = pages.get(int(node[1]), 0) + int(node[2])
        elif count:
            counts[count[1]] = int(count[2])
        elif not _FIELD.match(word) or word.endswith("="):
            odd = True
    size = counts.get("kernelpagesize_kB", 0) * 1024
    return MapLine(
        number,
        line.strip(),
        process,
        pid,
        address,
        policy,
        file,
        deleted,
        pages,
        size or PAGE_BYTES,
        _whole(pages, counts, sized, odd),
    )


def _whole(pages: Mapping[int, int], counts: Mapping[str, int], sized: bool, odd: bool) -> bool:
    """Whether a line is all there: kernels end a line that has pages with kernelpagesize_kB.

    Before Linux 3.8 they did not; then the pages of all nodes must be the count that the line begins with.
    """
    if odd:
        return False
    if counts.get("kernelpagesize_kB"):
        return bool(pages) or not any(counts.get(name) for name in ("anon", "dirty", "mapped"))
    if not pages and not counts:
        return True
    return not sized and sum(pages.values()) in [counts[name] for name in ("mapped", "dirty", "anon") if name in counts]


def merge(mappings: Iterable[MapLine]) -> Iterable[Buffer]:
    """The nccl- files, each once: its lines in one process are added, its processes overlap and the most per node counts.

    The result does not depend on the order of the processes. `size_bytes` is 0: the text does not tell a file's length.
    """
    files: dict[str, dict[int, list[MapLine]]] = {}
    for mapping in mappings:
        if mapping.is_nccl and mapping.file:
            files.setdefault(mapping.file, {}).setdefault(mapping.process, []).append(mapping)
    for file, processes in files.items():
        by_node: dict[int, int] = {}
        for lines in processes.values():
            for node, held in _of_one_process(lines).items():
                by_node[node] = max(by_node.get(node, 0), held)
        every = [mapping for lines in processes.values() for mapping in lines]
        present = sum(by_node.values())
        yield Buffer(
            file=file,
            identity=file,
            role=role_of(present, max(mapping.page_bytes for mapping in every)) if present else BufferRole.UNKNOWN,
            size_bytes=0,
            by_node=dict(sorted(by_node.items())),
            deleted=any(mapping.deleted for mapping in every),
            pids=tuple(sorted({mapping.pid for mapping in every if mapping.pid is not None})),
            policies=tuple(sorted({mapping.policy for mapping in every if mapping.policy})),
        )


def _of_one_process(lines: Sequence[MapLine]) -> dict[int, int]:
    """Bytes by node of one file in one process.

    One file can be several mappings side by side (8,353 + 1 pages are one pool), which add up. It can also be mapped twice,
    by two ranks in one process or by processes pasted without a mark between them; then the sum is no size that NCCL makes
    while each copy is one, or large pieces come in equal numbers, and a copy counts once.
    """
    whole = _add(lines)
    if _known(lines) or len(lines) < 2:
        return whole
    alike = Counter(sum(line.by_node.values()) for line in lines)
    copies = min(alike.values())
    if copies > 1 and all(count % copies == 0 for count in alike.values()):
        seen: Counter[int] = Counter()
        groups: list[list[MapLine]] = [[] for _ in range(copies)]
        for line in sorted(lines, key=lambda entry: sorted(entry.by_node.items())):
            size = sum(line.by_node.values())
            groups[seen[size] % copies].append(line)
            seen[size] += 1
        if all(_known(group) or _bytes(group) >= LARGE_BYTES for group in groups):
            return _most(_add(group) for group in groups)
    if all(_known([line]) for line in lines):
        return _most(line.by_node for line in lines)
    return whole


def _known(lines: Sequence[MapLine]) -> bool:
    """Whether these mappings together have a size that NCCL makes."""
    size = _bytes(lines)
    return size >= LARGE_BYTES and role_of(size, max(line.page_bytes for line in lines)) is not BufferRole.UNKNOWN


def _bytes(lines: Iterable[MapLine]) -> int:
    return sum(sum(line.by_node.values()) for line in lines)


def _add(lines: Iterable[MapLine]) -> dict[int, int]:
    total: dict[int, int] = {}
    for line in lines:
        for node, held in line.by_node.items():
            total[node] = total.get(node, 0) + held
    return total


def _most(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    most: dict[int, int] = {}
    for part in parts:
        for node, held in part.items():
            most[node] = max(most.get(node, 0), held)
    return most
