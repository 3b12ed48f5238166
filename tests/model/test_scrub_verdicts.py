"""A scrubbed snapshot is judged as the whole one is."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.control.checks import load as load_checks
from nearsocket.model.judge import judge
from nearsocket.model.read.assemble import host as read
from nearsocket.model.scrub import scrub
from nearsocket.model.snapshot import Snapshot
from tests import snapshots

CHECKS = load_checks([Path(__file__).parents[2] / "checks"])


def verdicts(snapshot: Snapshot) -> list[tuple[str, str, str, str]]:
    host = read(snapshot)
    # The host's own name is a subject; it is what scrubbing replaces.
    return [(one.id, one.status.value, one.subject.replace(host.name, "HOST"), one.summary) for one in judge(host, CHECKS)]


def shape(snapshot: Snapshot) -> list[object]:
    host = read(snapshot)
    return [
        host.sockets,
        host.nodes,
        [(gpu.pci, gpu.node, gpu.links, gpu.p2p) for gpu in host.gpus],
        [(process.pid, process.unit, process.engine, process.rank, process.policy, process.gpus) for process in host.processes],
        [(replica.name, replica.pids, replica.gpus, bool(replica.container)) for replica in host.replicas],
        [(buffer.file, buffer.by_node, buffer.role, buffer.pids) for buffer in host.buffers],
    ]


@pytest.mark.parametrize("name", snapshots.names())
def test_scrubbing_changes_no_verdict_and_no_part_of_the_host(name: str) -> None:
    whole = snapshots.load(name)
    scrubbed = scrub(whole)
    assert shape(scrubbed) == shape(whole)
    assert verdicts(scrubbed) == verdicts(whole)
    assert scrubbed.host == "host-1"
