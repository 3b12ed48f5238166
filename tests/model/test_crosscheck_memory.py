"""The nodes' memory held against the whole machine's."""

from __future__ import annotations

from nearsocket.model.host import Host
from nearsocket.model.read import host
from nearsocket.model.snapshot import Source
from tests.snapshots import base, machine
from tests.snapshots.base import TWO_NODES

GIB = 1 << 30


def read(**sources: Source) -> Host:
    return host(base.host(sources=sources))


def test_nodes_that_do_not_add_up_to_the_machines_memory_are_noted_and_one_node_takes_the_machines() -> None:
    whole = base.source("MemTotal: 67108864 kB\nMemFree: 33554432 kB\nCached: 1048576 kB\nBuffers: 0 kB\n")
    two = read(meminfo=whole)
    assert "nodes: the nodes' memory adds up to 524288 MiB, /proc/meminfo says 65536 MiB" in two.notes
    assert [node.memory.total_bytes for node in two.nodes if node.memory] == [256 * GIB, 256 * GIB]
    one = read(meminfo=whole, nodes=machine.node_files((TWO_NODES[0],)))
    assert one.nodes[0].memory is not None and one.nodes[0].memory.total_bytes == 64 * GIB
