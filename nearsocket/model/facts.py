"""The facts of a pasted text as `explain --json` prints them (DESIGN, contracts; docs/explain.md has the tables)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from nearsocket.model import cpulist
from nearsocket.model.parsers.nccl_log import NcclLog
from nearsocket.model.parsers.numa_maps import NumaMaps
from nearsocket.model.parsers.numactl import Hardware
from nearsocket.model.parsers.topology import Topology
from nearsocket.model.verdicts.placement import payload_buffers

#: JSON's own values, keys as the contract names them.
Facts = Mapping[str, Any]


def numa_maps(maps: NumaMaps) -> Facts:
    """`buffers` (bytes present, by node), `by_node` (over what carries payload), `policies`."""
    total: Counter[int] = Counter()
    for buffer in payload_buffers(maps.buffers):
        total.update(buffer.by_node)
    return {
        "buffers": [
            {
                "file": buffer.file,
                "bytes": buffer.present_bytes,
                "by_node": _by_node(buffer.by_node),
                "deleted": buffer.deleted,
                "role": buffer.role.value,
            }
            for buffer in maps.buffers
        ],
        "by_node": _by_node(total),
        "policies": list(maps.policies),
    }


def nccl_log(log: NcclLog) -> Facts:
    """Version, environment, transports, host buffers of 1 MiB or more, affinities, ranks. A variable's last value counts."""
    return {
        "version": log.version,
        "env": {entry.name: entry.value for entry in log.env},
        "transports": dict(Counter(transport.word for transport in log.transports)),
        "host_buffers": {"mmap": len(log.mmap), "cumem": len(log.cumem), "cumem_nodes": list(log.cumem_nodes)},
        "fallback": bool(log.fallback),
        "affinity": {str(gpu): cpus for gpu, cpus in log.affinity},
        "ranks": len(log.ranks),
    }


def topology(table: Topology) -> Facts:
    """GPUs with node and CPUs, links of each pair once, names of network cards."""
    return {
        "gpus": [{"index": gpu.index, "node": gpu.node, "cpus": gpu.cpus} for gpu in table.gpus],
        "links": [[link.a, link.b, link.word] for link in table.links],
        "nics": list(table.nics),
    }


def numactl(hardware: Hardware) -> Facts:
    """Nodes with CPUs and memory, rows of distances."""
    return {
        "nodes": [
            {
                "node": node.node,
                "cpus": cpulist.render(node.cpus),
                "size_mb": node.size_mb,
                "free_mb": node.free_mb,
                "memoryless": node.memoryless,
                "cpuless": node.cpuless,
            }
            for node in hardware.nodes
        ],
        "distances": [list(row) for row in hardware.distances],
    }


def _by_node(bytes_of: Mapping[int, int]) -> dict[str, int]:
    return {str(node): held for node, held in sorted(bytes_of.items()) if held}
