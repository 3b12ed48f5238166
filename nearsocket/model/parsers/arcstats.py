"""ZFS's /proc/spl/kstat/zfs/arcstats: rows of `name type data`."""

from __future__ import annotations

from collections.abc import Mapping

from nearsocket.model.parsers import take


def arcstats(text: str) -> Mapping[str, int]:
    """Name to value, such as `size`, `c_min` and `c_max` in bytes; the two head lines and cut rows are left out."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        value = take.number(fields[2]) if len(fields) == 3 else None
        if value is not None:
            found[fields[0]] = value
    return found
