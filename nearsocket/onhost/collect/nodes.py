"""NUMA nodes and CPUs as sysfs shows them, and numactl's word on the same."""

from __future__ import annotations

from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect import command
from nearsocket.onhost.collect.files import Context, read_files


def nodes(context: Context) -> Source:
    """Nodes: CPUs, distances, memory, huge pages."""
    return read_files(
        context.path("/sys/devices/system/node"),
        (
            "online",
            "possible",
            "has_cpu",
            "has_memory",
            "node[0-9]*/cpulist",
            "node[0-9]*/distance",
            "node[0-9]*/meminfo",
            "node[0-9]*/vmstat",
            "node[0-9]*/hugepages/hugepages-*kB/nr_hugepages",
            "node[0-9]*/hugepages/hugepages-*kB/free_hugepages",
        ),
    )


def cpus(context: Context) -> Source:
    """CPUs: package, core, siblings."""
    names = ("physical_package_id", "core_id", "thread_siblings_list")
    patterns = ["online", *(f"cpu[0-9]*/topology/{name}" for name in names)]
    return read_files(context.path("/sys/devices/system/cpu"), patterns)


def numactl(_context: Context) -> Source:
    """`numactl -H`."""
    return command.source(["numactl", "-H"], 5)
