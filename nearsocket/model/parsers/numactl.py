"""`numactl -H` as values: nodes with their CPUs and memory, and the distances between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from nearsocket.model import cpulist
from nearsocket.model.parsers.text import clean

_AVAILABLE = re.compile(r"available: (?P<count>\d{1,4}) nodes? \((?P<list>[\d,\s-]*)\)")
_NODE = re.compile(r"\s*node (?P<node>\d{1,4}) (?P<what>cpus|size|free):(?P<value>.*)\Z")
_SIZE = re.compile(r"(?P<number>\d{1,15}) (?P<unit>[kMG]B)\Z")
_DISTANCES = re.compile(r"\s*node distances:")
_HEADER = re.compile(r"\s*node((?:\s+\d{1,9})+)\s*\Z")
_ROW = re.compile(r"\s*(?P<node>\d{1,4}):(?P<values>(?:\s+\d{1,9})*)\s*\Z")
_NO_NUMA = re.compile(r"No NUMA (?:available|support available) on this system", re.IGNORECASE)
_PARTS = ("cpus", "size", "free")


class NumactlError(ValueError):
    """A text that cannot be read with certainty; the message names the line."""


@dataclass(frozen=True)
class HardwareNode:
    """One node: its CPUs, memory and free memory in MB as numactl counts them (1024 * 1024 bytes)."""

    node: int
    cpus: frozenset[int]
    size_mb: int
    free_mb: int
    lines: tuple[tuple[int, str], ...]

    @property
    def memoryless(self) -> bool:
        """Whether the node has no memory."""
        return self.size_mb == 0

    @property
    def cpuless(self) -> bool:
        """Whether the node has no CPU (memory alone, as with CXL)."""
        return not self.cpus


@dataclass(frozen=True)
class Hardware:
    """The nodes in the text's order and the rows of distances in the same order; no rows where the text has none.

    `numa` is false where the kernel has no NUMA at all; then there are no nodes.
    """

    nodes: tuple[HardwareNode, ...]
    distances: tuple[tuple[int, ...], ...]
    numa: bool = True


def looks_like(text: str) -> int:
    """How many lines of the text are numactl's."""
    lines = [clean(line) for line in text.splitlines()]
    return sum(
        1 for line in lines if _AVAILABLE.search(line) or _NODE.match(line) or _DISTANCES.match(line) or _NO_NUMA.search(line)
    )


def parse(text: str) -> Hardware:
    """Read the text, whatever stands before and after it.

    Raises NumactlError, with the line, where a line is missing, cut or contradicts another.
    """
    lines = [(number, clean(line).rstrip()) for number, line in enumerate(text.splitlines(), 1)]
    if any(_NO_NUMA.search(line) for _, line in lines):
        return Hardware((), (), False)
    begin = [(number, found) for number, line in lines for found in [_AVAILABLE.search(line)] if found]
    if len(begin) > 1:
        raise NumactlError(f"line {begin[1][0]}: expected one host's text, found a second 'available:' line")
    if not begin:
        raise NumactlError("line 1: expected a line 'available: 2 nodes (0-1)' before the nodes, found none")
    number, available = begin[0]
    wanted = _wanted(number, available)
    entries = _entries(lines[number:])
    nodes = tuple(_node(node, entries, number) for node in wanted)
    foreign = next((key for key in entries if key[0] not in wanted), None)
    if foreign:
        raise NumactlError(f"line {entries[foreign][0]}: node {foreign[0]} is not among the nodes that line {number} names")
    _check_cpus(nodes)
    return Hardware(nodes, _distances(lines[number:], wanted))


def _wanted(number: int, available: re.Match[str]) -> list[int]:
    try:
        nodes = sorted(cpulist.parse(available["list"]))
    except ValueError as error:
        raise NumactlError(f"line {number}: {error}") from None
    if len(nodes) != int(available["count"]) or not nodes:
        raise NumactlError(f"line {number}: expected {available['count']} nodes in {available['list']!r}, found {len(nodes)}")
    return nodes


def _entries(lines: Sequence[tuple[int, str]]) -> dict[tuple[int, str], tuple[int, str, str]]:
    """(node, cpus/size/free) to (line number, value, line), up to the distances."""
    entries: dict[tuple[int, str], tuple[int, str, str]] = {}
    for number, line in lines:
        if _DISTANCES.match(line):
            break
        found = _NODE.match(line)
        if found:
            key = (int(found["node"]), found["what"])
            if key in entries:
                raise NumactlError(f"line {number}: expected 'node {key[0]} {key[1]}:' once, found it twice")
            entries[key] = (number, found["value"].strip(), line)
        elif re.fullmatch(r"[\d\s]+", line) and line.strip():
            raise NumactlError(
                f"line {number}: expected a line that begins with 'node', found a continued one: {line.strip()[:80]!r}"
            )
    return entries


def _node(node: int, entries: dict[tuple[int, str], tuple[int, str, str]], after: int) -> HardwareNode:
    for part in _PARTS:
        if (node, part) not in entries:
            last = max((entry[0] for key, entry in entries.items() if key[0] <= node), default=after)
            raise NumactlError(f"line {last}: expected a line 'node {node} {part}:' after it, found none")
    cpus_at, cpus_text, _ = entries[node, "cpus"]
    try:
        cpus = cpulist.parse(",".join(cpus_text.replace(",", " ").split()))
    except ValueError as error:
        raise NumactlError(f"line {cpus_at}: {error}") from None
    size, free = (_megabytes(*entries[node, part][:2]) for part in ("size", "free"))
    return HardwareNode(node, cpus, size, free, tuple((entries[node, part][0], entries[node, part][2]) for part in _PARTS))


def _megabytes(number: int, text: str) -> int:
    found = _SIZE.match(text)
    if not found:
        raise NumactlError(f"line {number}: expected a size such as 257600 MB, found {text[:80]!r}")
    value = int(found["number"])
    return {"kB": value // 1024, "MB": value, "GB": value * 1024}[found["unit"]]


def _check_cpus(nodes: Sequence[HardwareNode]) -> None:
    seen: dict[int, int] = {}
    for node in nodes:
        for cpu in node.cpus:
            if cpu in seen:
                raise NumactlError(f"line {node.lines[0][0]}: CPU {cpu} is on node {node.node} and on node {seen[cpu]}")
            seen[cpu] = node.node


def _distances(lines: Sequence[tuple[int, str]], wanted: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    start: Optional[int] = next((i for i, (_, line) in enumerate(lines) if _DISTANCES.match(line)), None)
    if start is None:
        return ()  # numactl before 2.0.3, or a kernel that does not tell
    at = lines[start][0]
    rows: dict[int, tuple[int, ...]] = {}
    head: Optional[list[int]] = None
    for number, line in lines[start + 1 :]:
        header, row = _HEADER.match(line), _ROW.match(line)
        if header and head is None:
            head = [int(value) for value in header[1].split()]
            if head != list(wanted):
                raise NumactlError(
                    f"line {number}: expected the nodes {cpulist.render(wanted)} over the distances, found {header[1].strip()!r}"
                )
        elif row and head is not None:
            values = tuple(int(value) for value in row["values"].split())
            if len(values) != len(head) or int(row["node"]) in rows or int(row["node"]) not in head:
                raise NumactlError(
                    f"line {number}: expected one row of {len(head)} distances for each node, found {line.strip()[:80]!r}"
                )
            rows[int(row["node"])] = values
        elif line.strip():
            break
    missing = [node for node in wanted if node not in rows]
    if missing:
        raise NumactlError(f"line {at}: expected a row of distances for node {missing[0]} after it, found none")
    return tuple(rows[node] for node in wanted)
