"""What the kernel keeps free on a node, from /proc/zoneinfo (mm/vmstat.c, zoneinfo_show_print)."""

from __future__ import annotations

import re

_ZONE = re.compile(r"Node\s+([0-9]{1,6}), zone\s+\S+")
_ROW = re.compile(r"(?:pages )?(free|boost|high|managed|protection:)\s+(.*)")


def kept_pages(text: str, node: int) -> int:
    """How many pages of that node may stay free although every page that user memory can have is taken.

    For each zone: the high watermark that kswapd frees up to, doubled since it frees in steps, the boost after fragmentation,
    and what is protected from allocations that could use a higher zone; never more than the zone has.
    0 where the text has no such node.
    """
    found, ours = 0, False
    zone: dict[str, int] = {}
    for line in [*text.splitlines(), "Node 0, zone end"]:
        head = _ZONE.match(line)
        if head:
            found += _kept(zone) if ours else 0
            zone, ours = {}, int(head[1]) == node
            continue
        row = _ROW.fullmatch(line.strip())
        if row:
            numbers = [int(number) for number in re.findall(r"[0-9]{1,18}", row[2])]
            zone[row[1].rstrip(":")] = max(numbers, default=0)
    return found


def _kept(zone: dict[str, int]) -> int:
    return min(zone.get("managed", 0), 2 * zone.get("high", 0) + zone.get("boost", 0) + zone.get("protection", 0))
