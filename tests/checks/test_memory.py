"""memory.*: room on near nodes, the ARC, policies of mounts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.host import Host, Mount, NodeMemory, Process
from tests import build
from tests.build import GIB
from tests.checks.judging import findings, host_with, one, status

FREE, ARC, MOUNT = "memory.near-free", "memory.zfs-arc", "memory.shm-mount-policy"
MIB = 1 << 20
FILLED = NodeMemory(256 * GIB, 1 * GIB, 200 * GIB, shmem_bytes=10 * GIB)
SHORT = NodeMemory(256 * GIB, 1 * GIB, 12 * GIB, shmem_bytes=11 * GIB)


def near(memory: NodeMemory | None, **changes: Any) -> Host:
    """The host whose GPUs' node has this memory."""
    return build.host(nodes=(build.node(0), build.node(1, memory=memory)), **changes)


def unbound(**changes: Any) -> tuple[Process, ...]:
    return tuple(build.process(4242 + rank, rank, policy="default", **changes) for rank in (0, 1))


def test_free_memory_passes_and_only_near_nodes_are_judged() -> None:
    full_far_node = build.host(nodes=(build.node(0, memory=SHORT), build.node(1)), processes=unbound())
    finding = one(FREE, full_far_node)
    assert (finding.status.value, finding.subject) == ("pass", "node 1")


def test_a_near_node_full_of_page_cache_warns_where_nothing_holds_the_next_start() -> None:
    for processes in ((), unbound()):
        finding = one(FREE, near(FILLED, processes=processes))
        assert finding.status.value == "warn"
        assert "1.0 GiB free of 256 GiB, 190 GiB page cache" in finding.summary
        assert "drop_caches" in (finding.remedy or "")


def test_page_cache_does_not_matter_where_running_engines_are_held_near() -> None:
    assert one(FREE, near(FILLED)).status.value == "pass"
    cpuset = unbound(mems_allowed=frozenset({1}))
    assert one(FREE, near(FILLED, processes=cpuset)).status.value == "pass"
    one_free = (build.process(4242, 0), build.process(4243, 1, policy="default"))
    assert one(FREE, near(FILLED, processes=one_free)).status.value == "warn"


def test_short_even_after_reclaim_fails_unless_a_held_engine_fills_it() -> None:
    assert one(FREE, near(SHORT, processes=())).status.value == "fail"
    assert one(FREE, near(SHORT, processes=unbound())).status.value == "fail"
    assert one(FREE, near(SHORT)).status.value == "warn"


def test_shared_memory_is_no_page_cache() -> None:
    shared = NodeMemory(256 * GIB, 1 * GIB, 200 * GIB, shmem_bytes=200 * GIB)
    assert one(FREE, near(shared, processes=())).status.value == "fail"


def test_a_small_node_needs_a_tenth() -> None:
    assert one(FREE, near(NodeMemory(700 * MIB, 300 * MIB, 200 * MIB), processes=())).status.value == "pass"
    assert one(FREE, near(NodeMemory(700 * MIB, 60 * MIB, 500 * MIB), processes=())).status.value == "warn"


def test_the_evidence_is_the_nodes_meminfo_as_read() -> None:
    text = "Node 1 MemTotal:  268435456 kB\nNode 1 MemFree:  1048576 kB\nNode 1 Active: 3 kB\nNode 1 FilePages: 209715200 kB\n"
    host = near(FILLED, processes=(), sources={**build.host().sources, "nodes": build.source(data={"node1/meminfo": text})})
    shown = one(FREE, host).evidence[0]
    assert shown.source == "nodes node1/meminfo"
    assert shown.text.splitlines()[1] == "Node 1 MemFree: 1048576 kB"
    assert "Active" not in shown.text


def test_unread_memory_and_unknown_near_nodes_are_unknown() -> None:
    assert status(FREE, near(None)) == "unknown"
    nowhere = tuple(build.gpu(n, node=None, socket=None, claims=()) for n in (0, 1))
    assert status(FREE, build.host(gpus=nowhere)) == "unknown"


def test_a_gpu_on_a_node_without_memory_fails() -> None:
    nodes = (build.node(0), build.node(1, memoryless=True, memory=None), build.node(2, socket=1))
    found = findings(FREE, build.host(nodes=nodes))
    assert [(f.subject, f.status.value) for f in found] == [("node 1", "fail")]


def arc(size: int | None, **changes: Any) -> Host:
    text = "6 1 0x01 147 39984 0 0\nname type data\nsize 4 5\nc_max                           4    274877906944\n"
    return host_with({"zfs.arcstats": build.source(text)}, **{"arc_bytes": size, **changes})


def test_a_small_arc_passes_and_a_large_one_warns_with_its_limit() -> None:
    assert status(ARC, arc(20 * GIB)) == "pass"
    finding = one(ARC, arc(200 * GIB))
    assert finding.status.value == "warn"
    assert "may grow to 256 GiB" in finding.summary
    assert "zfs_arc_max" in (finding.remedy or "")


def test_a_large_arc_beside_a_short_near_node_fails() -> None:
    host = arc(200 * GIB, nodes=(build.node(0), build.node(1, memory=SHORT)), processes=())
    assert status(ARC, host) == "fail"


def test_no_zfs_is_not_applicable_and_unread_is_unknown() -> None:
    assert status(ARC, host_with({"zfs.arcstats": build.source(status="absent", reason="no such file")})) == "not-applicable"
    assert status(ARC, host_with({"zfs.arcstats": build.source(status="denied")})) == "unknown"
    assert status(ARC, host_with({"zfs.arcstats": build.source("garbled")})) == "unknown"
    assert status(ARC, arc(200 * GIB, nodes=(build.node(0, memory=None), build.node(1, memory=None)))) == "unknown"


def mounted(policy: str | None, **changes: Any) -> Host:
    mount = Mount("/dev/shm", "tmpfs", "shm", ("rw", f"mpol={policy}"), policy)
    return build.host(processes=unbound(shm_mount=mount, **changes))


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("bind:1", "pass"),
        ("bind=static:1", "pass"),
        ("interleave:1", "pass"),
        ("bind:0-1", "warn"),
        ("interleave:0-1", "warn"),
        ("prefer:1", "warn"),
        ("prefer (many):1", "warn"),
        ("local", "warn"),
        ("bind:0", "fail"),
        ("prefer:0", "fail"),
        ("weighted interleave:0", "fail"),
        ("some new thing!", "unknown"),
        ("bind:9-", "unknown"),
    ],
)
def test_a_mounts_policy_against_the_gpus_nodes(policy: str, wanted: str) -> None:
    assert status(MOUNT, mounted(policy)) == wanted


def test_a_policy_that_the_cpuset_does_not_allow_is_ignored_and_fails() -> None:
    finding = findings(MOUNT, mounted("bind:1", mems_allowed=frozenset({0})))[0]
    assert finding.status.value == "fail"
    assert "ignored" in finding.summary
    assert any("Mems_allowed_list: 0" in e.text for e in finding.evidence)


def test_one_mount_for_ranks_of_two_sockets_is_wrong_for_one_of_them() -> None:
    mount = Mount("/dev/shm", "tmpfs", "shm", ("rw",), "bind:1")
    ranks = (build.process(4242, 0, shm_mount=mount), build.process(4243, 1, shm_mount=mount))
    gpus = (build.gpu(0), build.gpu(1, node=0, socket=0))
    assert [f.status.value for f in findings(MOUNT, build.host(gpus=gpus, processes=ranks))] == ["pass", "fail"]


def test_a_mount_of_the_host_counts_where_it_holds_nccls_files() -> None:
    mounts = (
        Mount("/dev/shm", "tmpfs", "tmpfs", ("rw",)),
        Mount("/srv/shm-a", "tmpfs", "tmpfs", ("rw",), "bind:0"),
        Mount("/tmp", "tmpfs", "tmpfs", ("rw",), "interleave:0-1"),
    )
    box = build.container(mounts=(("/srv/shm-a", "/dev/shm", "bind"),))
    finding = one(MOUNT, build.host(mounts=mounts, containers=(box,), processes=()))
    assert (finding.subject, finding.status.value) == ("/srv/shm-a", "fail")
    assert status(MOUNT, build.host(mounts=mounts, containers=(), processes=())) == "not-applicable"


def test_no_policy_is_not_applicable_and_unread_mounts_are_unknown() -> None:
    assert status(MOUNT, build.host()) == "not-applicable"
    unread = host_with({"mounts": build.source(status="denied")}, mounts=(), processes=())
    assert status(MOUNT, unread) == "unknown"
    hidden = host_with({"processes": build.source(status="timeout")}, processes=())
    assert status(MOUNT, hidden) == "unknown"


def test_a_policy_where_near_is_not_known_is_unknown() -> None:
    host = mounted("bind:1")
    nowhere = tuple(dataclasses.replace(gpu, node=None, socket=None, claims=()) for gpu in host.gpus)
    assert status(MOUNT, dataclasses.replace(host, gpus=nowhere)) == "unknown"
