"""The `units` source: services as `systemctl show` tells them."""

from __future__ import annotations

from typing import Any

from nearsocket.model.host import Unit
from nearsocket.model.parsers import take


def units(data: Any) -> tuple[Unit, ...]:
    """The units that have a name; values of a wrong type count as empty."""
    return tuple(
        Unit(
            id=take.word(entry.get("id")),
            active=take.word(entry.get("active")),
            sub=take.word(entry.get("sub")),
            main_pid=take.number(entry.get("main_pid")) or 0,
            numa_policy=take.word(entry.get("numa_policy")),
            numa_mask=take.word(entry.get("numa_mask")),
            allowed_memory_nodes=take.word(entry.get("allowed_memory_nodes")),
            allowed_cpus=take.word(entry.get("allowed_cpus")),
            exec_start=take.word(entry.get("exec_start")),
            cgroup=take.word(entry.get("cgroup")),
        )
        for entry in take.maps(data)
        if take.text(entry.get("id"))
    )
