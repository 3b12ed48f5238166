"""Each fixture snapshot gives the host that stands beside it (`NAME.expected.json`), and is what its builder makes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nearsocket.model import near
from nearsocket.model.host import BufferRole, Host, Replica
from nearsocket.model.read import host
from tests import snapshots
from tests.snapshots.hosts import FIXTURES


def facts(made: Host) -> dict[str, Any]:
    """The part of a host that the expected files hold."""
    return {
        "sockets": {str(socket.id): list(socket.nodes) for socket in made.sockets},
        "cpuless": [node.id for node in made.nodes if node.cpuless],
        "memoryless": [node.id for node in made.nodes if node.memoryless],
        "gpus": {gpu.pci: [gpu.node, gpu.socket] for gpu in made.gpus},
        "near": numbers(near.of_host(made)),
        "replicas": [replica_facts(made, replica) for replica in made.replicas],
        "notes": list(made.notes),
    }


def replica_facts(made: Host, replica: Replica) -> dict[str, Any]:
    """One replica's part."""
    rings: dict[str, int] = {}
    for buffer in replica.buffers:
        for node, size in buffer.by_node.items():
            if buffer.role is BufferRole.RING:
                rings[str(node)] = rings.get(str(node), 0) + size
    return {
        "name": replica.name,
        "engine": replica.engine.value if replica.engine else None,
        "ranks": list(replica.ranks),
        "helpers": len(replica.pids) - len(replica.ranks),
        "gpus": list(replica.gpus),
        "sockets": list(replica.sockets),
        "near": numbers(near.of_processes(made, [p for p in made.processes if p.pid in replica.ranks])),
        "unit": replica.unit,
        "port": replica.port,
        "ring_bytes": rings,
    }


def numbers(found: frozenset[int] | None) -> list[int] | None:
    return None if found is None else sorted(found)


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_the_snapshot_gives_the_expected_host(name: str) -> None:
    expected = json.loads((snapshots.FOLDER / f"{name}.expected.json").read_text(encoding="utf-8"))
    assert facts(host(snapshots.load(name))) == expected


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_the_file_is_what_its_builder_makes(name: str) -> None:
    assert snapshots.path(name).read_text(encoding="utf-8") == FIXTURES[name]().to_json() + "\n"


def test_every_fixture_has_a_file_and_every_file_a_builder() -> None:
    assert snapshots.names() == sorted(FIXTURES)
