"""nccl.placement-enforced: near by force or by luck, for every way of binding that the lab measured."""

from __future__ import annotations

from typing import Any

import pytest

from nearsocket.model.finding import Status
from tests import build
from tests.checks import hosts
from tests.checks.judge import one

PLACEMENT, ENFORCED = "nccl.buffer-placement", "nccl.placement-enforced"

BOTH, ONE, FAR = frozenset({0, 1}), frozenset({1}), frozenset({0})
#: The lab's table of where NCCL's pages land: what is in force on the process, and whether it holds.
LAB = [
    ("unbound", {"policy": "default"}, Status.WARN),
    ("CPUs only", {"policy": "default", "mems_allowed": BOTH}, Status.WARN),
    ("numactl --preferred", {"policy": "prefer:1"}, Status.WARN),
    ("numactl --preferred-many", {"policy": "prefer (many):1"}, Status.WARN),
    ("numactl --interleave", {"policy": "interleave:0-1"}, Status.WARN),
    ("numactl --interleave near only", {"policy": "interleave:1"}, Status.WARN),
    ("weighted interleave", {"policy": "weighted interleave:0-1"}, Status.WARN),
    ("local", {"policy": "local"}, Status.WARN),
    ("tmpfs mpol=prefer", {"policy": "default", "shm_mount": hosts.shm("prefer:1")}, Status.WARN),
    ("tmpfs mpol=interleave under membind", {"policy": "bind:1", "shm_mount": hosts.shm("interleave:0-1")}, Status.WARN),
    ("membind", {"policy": "bind:1"}, Status.PASS),
    ("membind=static", {"policy": "bind=static:1"}, Status.PASS),
    ("membind with balancing", {"policy": "bind=static|balancing:1"}, Status.PASS),
    ("cpuset.mems", {"policy": "default", "mems_allowed": ONE}, Status.PASS),
    ("cpuset.mems, policy unread", {"policy": None, "mems_allowed": ONE}, Status.PASS),
    ("tmpfs mpol=bind", {"policy": "default", "shm_mount": hosts.shm("bind:1")}, Status.PASS),
    ("tmpfs mpol=bind under membind of the other node", {"policy": "bind:0", "shm_mount": hosts.shm("bind:1")}, Status.PASS),
    ("tmpfs mpol=bind:far under membind", {"policy": "bind:1", "shm_mount": hosts.shm("bind:0")}, Status.FAIL),
    (
        "tmpfs mpol=bind outside the cpuset",
        {"policy": "default", "mems_allowed": FAR, "shm_mount": hosts.shm("bind:1")},
        Status.FAIL,
    ),
    (
        "tmpfs mpol=bind, cpuset unread",
        {"policy": None, "mems_allowed": frozenset(), "shm_mount": hosts.shm("bind:1")},
        Status.UNKNOWN,
    ),
    ("membind far", {"policy": "bind:0"}, Status.FAIL),
    ("cpuset.mems far", {"policy": "default", "mems_allowed": FAR}, Status.FAIL),
    ("membind of both nodes", {"policy": "bind:0-1"}, Status.WARN),
    ("nothing read", {"policy": None, "mems_allowed": frozenset()}, Status.UNKNOWN),
    ("policy unread, all nodes allowed", {"policy": None}, Status.UNKNOWN),
]


@pytest.mark.parametrize(("changes", "status"), [case[1:] for case in LAB], ids=[case[0] for case in LAB])
def test_enforcement_is_the_live_policy_cpuset_or_mount(changes: dict[str, Any], status: Status) -> None:
    assert one(ENFORCED, hosts.running(**changes)).status is status


def test_a_mappings_own_policy_column_proves_nothing() -> None:
    bound_text = build.buffer("aB3dE9", policies=("bind:1",))
    assert one(ENFORCED, hosts.unbound(buffers=(bound_text,))).status is Status.WARN


def test_near_pages_without_force_are_luck() -> None:
    host = hosts.unbound()
    assert one(PLACEMENT, host).status is Status.PASS
    found = one(ENFORCED, host)
    assert found.status is Status.WARN and "by luck" in found.summary


def test_a_binding_newer_than_far_buffers_warns_until_the_restart() -> None:
    found = one(ENFORCED, hosts.running(buffers=(hosts.far_file(),)))
    assert found.status is Status.WARN
    assert "made before" in found.summary


def test_cumem_proven_by_the_logs_is_force() -> None:
    found = one(ENFORCED, hosts.unbound(buffers=(), nccl_log=hosts.log(hosts.CUMEM)))
    assert found.status is Status.PASS
    assert "cuMem" in found.summary


def test_enforcement_is_not_applicable_for_p2p_and_where_nothing_runs() -> None:
    assert one(ENFORCED, hosts.unbound(buffers=(), nccl_log=hosts.log(hosts.P2P))).status is Status.NOT_APPLICABLE
    assert one(ENFORCED, build.host(processes=())).status is Status.NOT_APPLICABLE
