"""nccl.buffer-placement: near, far, split, incomplete, unseen; shapes of hosts and groups, with nccl.placement-enforced beside."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import BufferRole, Engine
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one

PLACEMENT, ENFORCED = "nccl.buffer-placement", "nccl.placement-enforced"
RING = build.RING_BYTES


def test_near_files_pass_with_their_figures() -> None:
    found = one(PLACEMENT, build.host())
    assert found.status is Status.PASS
    assert "18.4 MiB, all on node 1" in found.summary
    assert found.subject == "replica sglang"


def test_one_far_file_among_near_ones_fails() -> None:
    found = one(PLACEMENT, hosts.running(buffers=(build.buffer("near01"), hosts.far_file())))
    assert found.status is Status.FAIL
    assert found.remedy is not None and "docker update --cpuset-cpus=12-23,36-47 --cpuset-mems=1 sglang" in found.remedy
    assert any(item.source == "GPU 0000:c1:00.0" for item in found.evidence)


@pytest.mark.parametrize(
    ("by_node", "status"),
    [
        ({1: RING}, Status.PASS),
        ({1: RING * 995 // 1000}, Status.PASS),
        ({1: RING * 98 // 100}, Status.UNKNOWN),
        ({1: RING * 995 // 1000, 0: RING * 5 // 1000}, Status.WARN),
        ({1: RING * 98 // 100, 0: RING * 2 // 100}, Status.FAIL),
        ({0: RING}, Status.FAIL),
        ({}, Status.UNKNOWN),
        ({1: RING // 2, 0: RING // 10}, Status.FAIL),
    ],
)
def test_a_file_is_judged_by_its_share(by_node: dict[int, int], status: Status) -> None:
    assert one(PLACEMENT, hosts.running(buffers=(build.buffer("aB3dE9", by_node),))).status is status


def test_one_incomplete_file_among_near_ones_forbids_a_pass() -> None:
    part = build.buffer("part00", {1: RING // 2})
    found = one(PLACEMENT, hosts.running(buffers=(build.buffer(), part)))
    assert found.status is Status.UNKNOWN
    assert "part00" in found.summary


def test_a_proxy_pool_and_control_files_on_the_far_node_are_not_judged() -> None:
    pool = build.buffer("pool00", {0: 34_217_984}, role=BufferRole.PROXY_POOL, size_bytes=34_217_984)
    control = build.buffer("ctrl00", {0: 8192}, role=BufferRole.CONTROL, size_bytes=8192)
    assert one(PLACEMENT, hosts.running(buffers=(build.buffer(), pool, control))).status is Status.PASS
    assert one(PLACEMENT, hosts.running(buffers=(pool, control))).status is Status.UNKNOWN


def test_no_nccl_lines_are_never_a_pass() -> None:
    found = one(PLACEMENT, hosts.running(buffers=()))
    assert found.status is Status.UNKNOWN
    assert found.remedy is not None and "NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,SHM,ALLOC,ALLOC_HOST" in found.remedy


@pytest.mark.parametrize(("node", "status"), [(1, Status.PASS), (0, Status.FAIL)])
def test_cumem_lines_of_every_rank_decide_where_no_file_is(node: int, status: Status) -> None:
    lines = tuple(line.replace("numa 1", f"numa {node}") for line in hosts.CUMEM)
    assert one(PLACEMENT, hosts.unbound(buffers=(), nccl_log=hosts.log(lines))).status is status


def test_cumem_of_one_rank_only_is_no_pass() -> None:
    first, second = hosts.ranks(policy="default", buffers=())
    loud = dataclasses.replace(first, nccl_log=hosts.log(hosts.CUMEM))
    found = one(PLACEMENT, build.host(processes=(loud, second)))
    assert found.status is Status.UNKNOWN
    assert "not every rank" in found.summary


def test_far_cumem_beside_near_files_fails() -> None:
    lines = tuple(line.replace("numa 1", "numa 0") for line in hosts.CUMEM)
    assert one(PLACEMENT, hosts.running(nccl_log=hosts.log(lines))).status is Status.FAIL


def test_p2p_only_is_not_applicable_with_the_log_as_evidence() -> None:
    found = one(PLACEMENT, hosts.unbound(buffers=(), nccl_log=hosts.log(hosts.P2P)))
    assert found.status is Status.NOT_APPLICABLE
    assert any("P2P/CUMEM" in item.text for item in found.evidence)


def test_nothing_running_is_not_applicable_only_where_all_processes_were_seen() -> None:
    idle = build.host(processes=())
    assert one(PLACEMENT, idle).status is Status.NOT_APPLICABLE
    cases: tuple[dict[str, Any], ...] = (
        {"uid": 1000},
        {"sources": {**idle.sources, "processes": build.source(status="denied", reason="permission denied")}},
        {"sources": {**idle.sources, "processes": build.source(data=[], reason="3 processes unreadable")}},
        {"sources": {}},
    )
    for changes in cases:
        found = one(PLACEMENT, dataclasses.replace(idle, **changes))
        assert found.status is Status.UNKNOWN, changes
        assert found.remedy


def test_a_host_without_gpus_is_not_applicable_for_any_user_until_near_is_named() -> None:
    bare = build.host(processes=(), gpus=(), uid=1000)
    assert one(PLACEMENT, bare).status is Status.NOT_APPLICABLE
    assert one(PLACEMENT, dataclasses.replace(bare, near=frozenset({0}))).status is Status.UNKNOWN


def test_unknown_gpu_nodes_make_placement_unknown_and_near_settles_it() -> None:
    lost = build.host(gpus=tuple(build.gpu(i, node=None, socket=None, claims=()) for i in (0, 1)))
    found = one(PLACEMENT, lost)
    assert found.status is Status.UNKNOWN
    assert found.remedy and "--near" in found.remedy
    assert one(PLACEMENT, dataclasses.replace(lost, near=frozenset({1}))).status is Status.PASS
    assert one(PLACEMENT, dataclasses.replace(lost, near=frozenset({0}))).status is Status.FAIL


def test_open_devices_on_both_sockets_do_not_make_both_near() -> None:
    gpus = (build.gpu(0, node=0, socket=0, claims=()), build.gpu(1))
    seen = hosts.ranks(gpus=tuple(gpu.pci for gpu in gpus), gpu_bytes={}, policy="bind:0-1")
    blind = build.host(gpus=gpus, processes=seen)
    sources = {**blind.sources, "nvml": build.source(status="timeout")}
    blind = dataclasses.replace(blind, sources=sources)
    for id in (PLACEMENT, ENFORCED, "engine.binding", "engine.memory-locality"):
        assert one(id, blind).status is Status.UNKNOWN, id
    assert one(PLACEMENT, dataclasses.replace(blind, near=frozenset({1}))).status is Status.PASS


def test_unreadable_buffers_of_one_rank_forbid_a_pass_but_not_a_fail() -> None:
    first, second = hosts.ranks()
    blind = dataclasses.replace(second, buffers=(), buffers_reason="permission denied")
    found = one(PLACEMENT, build.host(processes=(first, blind)))
    assert found.status is Status.UNKNOWN
    assert "permission denied" in found.summary
    far = dataclasses.replace(first, buffers=(hosts.far_file(),))
    assert one(PLACEMENT, build.host(processes=(far, blind))).status is Status.FAIL
    nothing = dataclasses.replace(first, buffers=(), buffers_reason="permission denied")
    assert one(PLACEMENT, build.host(processes=(nothing, blind))).status is Status.UNKNOWN


def test_processes_read_in_part_leave_an_unknown_beside_the_replicas_unless_nvml_lists_all() -> None:
    healthy = build.host()
    sources = {**healthy.sources, "processes": build.source(data=[], reason="2 processes denied")}
    assert one(PLACEMENT, dataclasses.replace(healthy, sources=sources)).status is Status.PASS
    sources["nvml"] = build.source(status="timeout")
    statuses = [finding.status for finding in judge(PLACEMENT, dataclasses.replace(healthy, sources=sources))]
    assert statuses == [Status.PASS, Status.UNKNOWN]


def test_what_even_root_may_not_see_is_no_gap_on_a_host_without_gpus() -> None:
    bare = build.host(processes=(), gpus=(), near=frozenset({1}))
    sources = {**bare.sources, "processes": build.source(data=[], reason="no permission to look into 1 of 112 processes")}
    assert one(PLACEMENT, dataclasses.replace(bare, sources=sources)).status is Status.NOT_APPLICABLE
    running = dataclasses.replace(
        build.host(), gpus=(), near=frozenset({1}), sources={**sources, "nvml": build.source(status="absent")}
    )
    assert one(PLACEMENT, running).status is Status.PASS


def test_nvml_listing_no_process_of_any_user_is_proof_that_nothing_runs() -> None:
    idle = build.host(processes=())
    partly = {**idle.sources, "processes": build.source(data=[], reason="no permission to look into 1 of 291 processes")}
    told = {"gpus": [{"processes": []}, {"processes": []}]}
    finding = one(PLACEMENT, dataclasses.replace(idle, sources={**partly, "nvml": build.source(data=told)}))
    assert finding.status is Status.NOT_APPLICABLE and finding.evidence[0].source == "nvml"
    for silent in ({"gpus": [{"processes": []}]}, {"gpus": [{"processes": []}, {"processes": None}]}, {"gpus": "x"}, None):
        sources = {**partly, "nvml": build.source(data=silent)}
        assert one(PLACEMENT, dataclasses.replace(idle, sources=sources)).status is Status.UNKNOWN


def test_each_replica_is_judged_by_its_own_gpus() -> None:
    gpus = (build.gpu(0, node=0, socket=0, claims=()), build.gpu(1))
    a = build.process(4242, 0, buffers=(build.buffer("a", {0: RING}, pids=(4242,)),), policy="bind:0")
    b = build.process(5252, 1, buffers=(build.buffer("b", {0: RING}, pids=(5252,)),), policy="default")
    replicas = (build.replica((a,), name="a"), build.replica((b,), name="b"))
    found = judge(PLACEMENT, build.host(gpus=gpus, processes=(a, b), replicas=replicas))
    assert [(f.subject, f.status) for f in found] == [("replica a", Status.PASS), ("replica b", Status.FAIL)]


def test_in_a_group_over_two_sockets_the_neighbours_files_are_legitimate() -> None:
    group = hosts.two_sockets_group()
    assert one(PLACEMENT, group).status is Status.PASS
    assert one(ENFORCED, group).status is Status.PASS


def test_in_a_group_over_two_sockets_a_file_between_two_ranks_of_one_socket_must_lie_there() -> None:
    group = hosts.two_sockets_group()
    wrong = build.buffer("own000", {1: RING}, pids=(4242, 4243))
    processes = tuple(
        dataclasses.replace(p, buffers=tuple(wrong if b.identity == wrong.identity else b for b in p.buffers))
        for p in group.processes
    )
    host = build.host(gpus=group.gpus, processes=processes, replicas=(build.replica(processes, sockets=(0, 1)),))
    found = one(PLACEMENT, host)
    assert found.status is Status.FAIL
    assert found.remedy is not None and "--cpuset-mems" not in found.remedy


def test_one_rank_bound_away_in_a_group_over_two_sockets_is_no_force() -> None:
    group = hosts.two_sockets_group()
    loose = dataclasses.replace(group.processes[3], policy="default")
    processes = (*group.processes[:3], loose)
    found = one(ENFORCED, dataclasses.replace(group, processes=processes))
    assert found.status is Status.WARN
    assert "1 of 4 ranks free" in found.summary


@pytest.mark.parametrize(
    ("policy", "at", "placement", "enforced"),
    [
        ("bind:3", 3, Status.PASS, Status.PASS),
        ("bind:2-3", 2, Status.PASS, Status.PASS),
        ("bind:1,3", 3, Status.PASS, Status.WARN),
        ("default", 1, Status.FAIL, Status.WARN),
    ],
)
def test_under_snc_near_is_the_whole_socket(policy: str, at: int, placement: Status, enforced: Status) -> None:
    host = hosts.snc(policy, at)
    assert one(PLACEMENT, host).status is placement
    assert one(ENFORCED, host).status is enforced


def test_on_one_socket_everything_is_near() -> None:
    assert one(PLACEMENT, hosts.one_socket()).status is Status.PASS
    assert one(ENFORCED, hosts.one_socket()).status is Status.PASS
    lost = dataclasses.replace(hosts.one_socket(), gpus=tuple(build.gpu(i, node=None, socket=None, claims=()) for i in (0, 1)))
    assert one(PLACEMENT, lost).status is Status.PASS
    assert one(ENFORCED, lost).status is Status.PASS


def test_one_process_with_the_only_gpu_has_nobody_to_exchange_with() -> None:
    alone = build.host(processes=hosts.ranks(1, buffers=()), gpus=(build.gpu(0),))
    assert one(PLACEMENT, alone).status is Status.NOT_APPLICABLE
    assert one(ENFORCED, alone).status is Status.NOT_APPLICABLE
    unread = build.host(processes=hosts.ranks(1, buffers=(), buffers_reason="permission denied"), gpus=(build.gpu(0),))
    assert one(PLACEMENT, unread).status is Status.UNKNOWN


def test_gpus_on_a_socket_without_memory_are_far_from_everything_and_no_bind_is_offered() -> None:
    nodes = (build.node(0), build.node(1, memory=None, memoryless=True))
    held: dict[str, Any] = {"policy": "default", "mems_allowed": frozenset({0}), "buffers": (hosts.far_file(),)}
    host = dataclasses.replace(build.host(processes=hosts.ranks(**held)), nodes=nodes)
    found = one(PLACEMENT, host)
    assert found.status is Status.FAIL
    assert found.remedy is not None and "--cpuset-mems" not in found.remedy and "has no memory" in found.remedy
    assert one(ENFORCED, host).status is Status.FAIL
    assert one("engine.binding", host).status is Status.FAIL


def test_stray_processes_with_files_are_judged_without_a_replica_or_a_gpu() -> None:
    lab: dict[str, Any] = {
        "engine": None,
        "rank": None,
        "gpus": (),
        "gpu_bytes": {},
        "container": None,
        "title": "rank\n\x1b[31m",
        "policy": "default",
    }
    host = dataclasses.replace(build.host(processes=hosts.ranks(**lab), gpus=()), replicas=(), near=frozenset({0}), containers=())
    found = judge(PLACEMENT, host)
    assert [finding.status for finding in found] == [Status.FAIL, Status.FAIL]
    assert all("numactl --cpunodebind=0 --membind=0" in (finding.remedy or "") for finding in found)
    bound = dataclasses.replace(host, near=frozenset({1}), processes=hosts.ranks(**{**lab, "policy": "bind:1"}))
    assert {finding.status for finding in judge(PLACEMENT, bound) + judge(ENFORCED, bound)} == {Status.PASS}


def test_a_hostile_file_name_stays_one_line() -> None:
    evil = build.buffer("x\n\x1b[31m", {1: RING // 2}, identity="0:25:9")
    for id in (PLACEMENT, "nccl.cumem-in-force"):
        judge(id, hosts.unbound(buffers=(evil,)))


def test_hostile_names_stay_one_line_and_quoted() -> None:
    name = "evil; rm -rf /\n\x1b]0;x\x07"
    processes = hosts.ranks(policy="default", buffers=(hosts.far_file(),))
    host = build.host(processes=processes, containers=(build.container(name=name),))
    host = dataclasses.replace(host, replicas=(build.replica(processes, name=name, engine=Engine.SGLANG),))
    found = one(PLACEMENT, host)
    assert found.remedy is not None
    assert "evil" not in found.remedy and "0123456789ab" in found.remedy
