"""The `topology` object of the JSON report: what a host is, in plain values. docs/report.md describes every key."""

from __future__ import annotations

import dataclasses
from typing import Any

from nearsocket.model import cpulist, near
from nearsocket.model.host import Buffer, Gpu, Host, Node, Replica
from nearsocket.model.verdicts.placement import Placement, judge_file

#: Whether a placement is near; None where it cannot be told. A file that is only partly near is not near.
_NEAR = {Placement.NEAR: True, Placement.FAR: False, Placement.SPLIT: False}


def topology(host: Host) -> dict[str, Any]:
    """The object, its keys and rows always in the same order."""
    return {
        "sockets": [{"id": s.id, "nodes": sorted(s.nodes), "cpus": cpulist.render(s.cpus)} for s in host.sockets],
        "nodes": [_node(node) for node in host.nodes],
        "gpus": [_gpu(gpu) for gpu in host.gpus],
        "replicas": [_replica(replica) for replica in host.replicas],
        "buffers": [_buffer(host, buffer) for buffer in host.buffers],
        "notes": list(host.notes),
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "socket": node.socket,
        "cpus": cpulist.render(node.cpus),
        "memory": dataclasses.asdict(node.memory) if node.memory else None,
        "memoryless": node.memoryless,
        "cpuless": node.cpuless,
        "distances": list(node.distances),
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "pci": gpu.pci,
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "node": gpu.node,
        "socket": gpu.socket,
        "claims": [{"source": c.source, "node": c.node, "nodes": cpulist.render(c.nodes), "text": c.text} for c in gpu.claims],
        "link": dataclasses.asdict(gpu.link),
        "driver": gpu.driver,
        "memory_bytes": gpu.memory_bytes,
        "memory_used_bytes": gpu.memory_used_bytes,
    }


def _replica(replica: Replica) -> dict[str, Any]:
    return {
        "name": replica.name,
        "engine": replica.engine.value if replica.engine else None,
        "pids": list(replica.pids),
        "ranks": list(replica.ranks),
        "gpus": list(replica.gpus),
        "sockets": list(replica.sockets),
        "container": replica.container,
        "unit": replica.unit,
        "port": replica.port,
    }


def _buffer(host: Host, buffer: Buffer) -> dict[str, Any]:
    placement = judge_file(buffer, near.of_buffer(host, buffer)).placement
    return {
        "file": buffer.file,
        "identity": buffer.identity,
        "role": buffer.role.value,
        "bytes": buffer.size_bytes,
        "by_node": {str(node): count for node, count in sorted(buffer.by_node.items())},
        "near": _NEAR.get(placement),
        "placement": placement.value,
        "deleted": buffer.deleted,
        "pids": list(buffer.pids),
        "policies": list(buffer.policies),
    }
