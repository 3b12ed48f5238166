"""Memory in bytes from a node's meminfo (`Node 0 MemTotal: 1024 kB`) and from /proc/meminfo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from nearsocket.model.host import NodeMemory
from nearsocket.model.parsers import take

_LINE = re.compile(r"(?:Node\s+[0-9]+\s+)?([A-Za-z0-9_()]+):\s+([0-9]{1,18})(\s+kB)?\s*")


def values(text: str) -> Mapping[str, int]:
    """Name to bytes (to a count for rows without a unit, such as HugePages_Total); rows that are cut are left out."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match:
            found[match[1]] = int(match[2]) * (1024 if match[3] else 1)
    return found


def node_memory(text: str, hugepages: Mapping[str, str]) -> Optional[NodeMemory]:
    """A node's memory; None where the total or the free size is missing.

    `hugepages`: `hugepages-2048kB/nr_hugepages` to text, as under the node's folder.
    """
    rows = values(text)
    if "MemTotal" not in rows or "MemFree" not in rows:
        return None
    return NodeMemory(
        total_bytes=rows["MemTotal"],
        free_bytes=rows["MemFree"],
        file_bytes=rows.get("FilePages", 0),
        shmem_bytes=rows.get("Shmem", 0),
        anon_bytes=rows.get("AnonPages", 0),
        reclaimable_bytes=rows.get("KReclaimable", rows.get("SReclaimable", 0)),
        hugepages_bytes=_huge(hugepages, "nr_hugepages"),
        hugepages_free_bytes=_huge(hugepages, "free_hugepages"),
    )


def whole_memory(text: str) -> Optional[NodeMemory]:
    """The machine's memory from /proc/meminfo; None where the total or the free size is missing.

    A node's FilePages counts block device buffers too, so Buffers is added to Cached here.
    """
    rows = values(text)
    if "MemTotal" not in rows or "MemFree" not in rows:
        return None
    page = rows.get("Hugepagesize", 0)
    return NodeMemory(
        total_bytes=rows["MemTotal"],
        free_bytes=rows["MemFree"],
        file_bytes=rows.get("Cached", 0) + rows.get("Buffers", 0),
        shmem_bytes=rows.get("Shmem", 0),
        anon_bytes=rows.get("AnonPages", 0),
        reclaimable_bytes=rows.get("KReclaimable", rows.get("SReclaimable", 0)),
        hugepages_bytes=rows.get("HugePages_Total", 0) * page,
        hugepages_free_bytes=rows.get("HugePages_Free", 0) * page,
    )


def _huge(files: Mapping[str, str], name: str) -> int:
    total = 0
    for path, text in files.items():
        match = re.fullmatch(r"hugepages-([0-9]{1,9})kB/" + name, path)
        total += int(match[1]) * 1024 * (take.number(text) or 0) if match else 0
    return total
