"""NCCL's files from mappings: merged first within a process, then over processes, so that no page counts twice.

Where a page lies is a property of the file, but a process shows only the pages that it has touched. A mapping gives counts,
not page numbers. So the file is cut into stretches, each of mappings (of any process) that overlap, and in each stretch
- a process's mappings are added up, except one that lies inside another of its own: the larger one has its pages;
- each node then counts the most that any one process sees. Two that see the same pages count once; two that see different
  pages of one stretch are undercounted, which at worst leaves a buffer's place unknown, never wrong.
Stretches are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model import roles
from nearsocket.model.host import Buffer
from nearsocket.model.parsers import sysfs, take

Range = tuple[int, int]
#: Page sizes run from 4 KiB to 16 GiB; a larger one is a damaged value.
PAGE_MAX = 1 << 34


@dataclass(frozen=True)
class Mapped:
    """One mapping of an nccl- file in one process: bytes present by node, in the range of the file that it maps."""

    pid: int
    identity: str
    file: str
    range: Range
    by_node: Mapping[int, int]
    page_bytes: int
    deleted: bool
    policy: Optional[str]


def mapped(pid: int, where: str, data: Any) -> tuple[tuple[Mapped, ...], int]:
    """The mappings of a process's `buffers`, and how many entries could not be read.

    `where` (its container, or empty) stands in for the device and inode of an entry that lacks them.
    """
    found: list[Mapped] = []
    entries = data if isinstance(data, list) else []
    for entry in take.maps(entries):
        file, length = take.text(entry.get("file")), take.number(entry.get("length"), 1)
        pages, page_bytes = entry.get("pages"), take.number(entry.get("page_bytes"), 1)
        if file is None or length is None or not isinstance(pages, dict) or page_bytes is None or page_bytes > PAGE_MAX:
            continue
        by_node: dict[int, int] = {}
        for key, value in pages.items():
            node, count = take.number(key), take.number(value, 1)
            if node is not None and node < sysfs.NODES_MAX and count is not None:
                by_node[node] = by_node.get(node, 0) + count * page_bytes
        device, inode = take.text(entry.get("device")), take.number(entry.get("inode"))
        identity = f"{device}:{inode}" if device is not None and inode is not None else f"{where}:{file}"
        span = (take.number(entry.get("offset")) or 0, length)
        deleted = take.flag(entry.get("deleted")) or False
        found.append(Mapped(pid, identity, file, span, by_node, page_bytes, deleted, take.text(entry.get("policy"))))
    return tuple(found), len(entries) - len(found)


def merge(mappings: Iterable[Mapped]) -> tuple[Buffer, ...]:
    """One buffer for each file, in the order of first sight."""
    files: dict[str, list[Mapped]] = {}
    for item in mappings:
        files.setdefault(item.identity, []).append(item)
    return tuple(_buffer(items) for items in files.values())


def _buffer(items: Sequence[Mapped]) -> Buffer:
    size = max(offset + length for offset, length in (item.range for item in items))
    return Buffer(
        file=items[0].file,
        identity=items[0].identity,
        role=roles.role_of(size, max(item.page_bytes for item in items)),
        size_bytes=size,
        by_node=_by_node(items),
        deleted=any(item.deleted for item in items),
        pids=tuple(sorted({item.pid for item in items})),
        policies=tuple(sorted({item.policy for item in items if item.policy is not None})),
    )


def _by_node(items: Sequence[Mapped]) -> Mapping[int, int]:
    total: dict[int, int] = {}
    for stretch in _stretches(items):
        seen: dict[int, list[Mapped]] = {}
        for item in stretch:
            seen.setdefault(item.pid, []).append(item)
        most: dict[int, int] = {}
        for mine in seen.values():
            for node, size in _of_process(mine).items():
                most[node] = max(most.get(node, 0), size)
        for node, size in most.items():
            total[node] = total.get(node, 0) + size
    return dict(sorted(total.items()))


def _stretches(items: Sequence[Mapped]) -> list[list[Mapped]]:
    """The mappings in groups whose ranges overlap, directly or by way of others."""
    found: list[list[Mapped]] = []
    end = 0
    for item in sorted(items, key=lambda item: item.range):
        if not found or item.range[0] >= end:
            found.append([])
        found[-1].append(item)
        end = max(end, sum(item.range))
    return found


def _of_process(items: Sequence[Mapped]) -> Mapping[int, int]:
    """What one process sees of a stretch. Equal ranges are one mapping twice: the more complete one counts."""
    ranges: dict[Range, dict[int, int]] = {}
    for item in items:
        most = ranges.setdefault(item.range, {})
        for node, size in item.by_node.items():
            most[node] = max(most.get(node, 0), size)
    total: dict[int, int] = {}
    counted_to = -1
    # By start, the longer first: a range that ends before the furthest end so far lies inside one that was counted.
    for offset, length in sorted(ranges, key=lambda span: (span[0], -span[1])):
        if offset + length <= counted_to:
            continue
        counted_to = offset + length
        for node, size in ranges[(offset, length)].items():
            total[node] = total.get(node, 0) + size
    return total
