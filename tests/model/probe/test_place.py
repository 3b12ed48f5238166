"""Where a probe's ranks are found in a snapshot, and the word for where their buffers lie: by the audit's own rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from nearsocket.model import read
from nearsocket.model.finding import Status
from nearsocket.model.probe.order import Backend
from nearsocket.model.probe.place import Where, _where, judge
from nearsocket.model.probe.starts import Started
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.verdict import PLACEMENT, Word, judged
from nearsocket.model.verdicts import proof
from nearsocket.model.verdicts.groupfacts import GroupFacts
from nearsocket.model.verdicts.groups import Group
from tests import build
from tests.snapshots import engines, hosts


def started(seen: Snapshot, **changes: Any) -> Started:
    """A start whose ranks are the snapshot's, as their parent counts them on the host."""
    host = read.host(seen)
    pids = tuple(pid for replica in host.replicas for pid in replica.ranks)
    return dataclasses.replace(Started("a", pids=pids, seen=seen), **changes)


@pytest.mark.parametrize(
    ("snapshot", "status", "where"),
    [(hosts.two_socket_far, Status.FAIL, Where.FAR), (hosts.two_socket_bound, Status.PASS, Where.NEAR)],
)
def test_the_ranks_are_judged_by_the_nodes_of_their_gpus(snapshot: Callable[[], Snapshot], status: Status, where: Where) -> None:
    finding, found = judge("x", started(snapshot()), Backend.NCCL)
    assert (finding.status, found) == (status, where)


def test_the_ranks_of_a_real_pair_of_gpus_are_found_near() -> None:
    finding, where = judge("x", started(engines.h200_pair()), Backend.NCCL)
    assert (finding.status, where) == (Status.PASS, Where.NEAR)


def test_a_rank_that_was_not_read_makes_the_whole_unknown() -> None:
    known = started(hosts.two_socket_bound())
    finding, where = judge("x", dataclasses.replace(known, pids=(*known.pids, 999_999)), Backend.NCCL)
    assert (finding.status, where) == (Status.UNKNOWN, Where.UNKNOWN)
    assert "2 of 3 ranks" in finding.summary


def test_the_gpu_that_a_rank_itself_names_decides_which_nodes_are_near() -> None:
    seen = engines.eight_gpus()
    host = read.host(seen)
    (replica,) = host.replicas
    some = replica.ranks[:2]
    sides = {gpu.node: gpu.pci for gpu in host.gpus}
    assert len(sides) == 2
    places = {
        node: judge("x", started(seen, pids=some, facts={n: {"pci": pci} for n in (0, 1)}), Backend.NCCL)[1]
        for node, pci in sides.items()
    }
    assert sorted(where is Where.NEAR for where in places.values()) == [False, True]


def test_in_a_container_ranks_are_found_by_its_own_numbers() -> None:
    seen = hosts.two_socket_far()
    host = read.host(seen)
    inside = [process for process in host.processes if process.container and len(process.nspid) > 1]
    if not inside:
        pytest.skip("the snapshot has no process in a container with numbers of its own")
    (name,) = {one.name for one in host.containers}
    pids = tuple(process.nspid[-1] for process in inside if process.pid in host.replicas[0].ranks)
    assert judge("x", started(seen, pids=pids), Backend.NCCL, name)[1] is Where.FAR
    assert judge("x", started(seen, pids=pids), Backend.NCCL, "another")[1] is Where.UNKNOWN


@pytest.mark.parametrize(("far_pages", "word", "where"), [(5, Word.NEAR, Where.NEAR), (80, Word.FAR, Where.SPLIT)])
def test_the_lottery_and_the_proof_have_one_rule_for_a_few_far_pages(far_pages: int, word: Word, where: Where) -> None:
    host = build.host()
    pages = 2354
    buffers = tuple(build.buffer(name, {1: (pages - far_pages) * 4096, 0: far_pages * 4096}) for name in ("aaaaaa", "bbbbbb"))
    processes = tuple(dataclasses.replace(process, buffers=buffers) for process in host.processes)
    facts = GroupFacts(
        dataclasses.replace(host, processes=processes, buffers=buffers), Group("x", None, processes, processes, None, None)
    )
    finding = proof.placement(facts)
    assert judged([dataclasses.replace(finding, id=PLACEMENT)])[0] is word
    assert _where(facts, finding) is where
