"""Which of its GPUs a rank works on: memory on GPUs of both sockets never makes both sockets near."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model import near
from nearsocket.model.finding import Status
from nearsocket.model.host import Host
from nearsocket.report.topology import topology
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one

PLACEMENT, ENFORCED, CUMEM = "nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force"
STRAY = 500 << 20
GPUS = tuple(build.gpu(i, node=i // 2, socket=i // 2, claims=()) for i in range(4))


def strays(at: int, stray_bytes: int | None = STRAY, **changes: Any) -> Host:
    """Ranks 2 and 3 on socket 1, each with a stray context on GPU 0; their ring file lies wholly on node `at`."""
    file = build.buffer("aB3dE9", {at: build.RING_BYTES}, pids=(4244, 4245))
    made = []
    for rank in (2, 3):
        held = {GPUS[0].pci: stray_bytes, GPUS[rank].pci: 90 * build.GIB}
        one = build.process(4242 + rank, 1, gpus=tuple(sorted(held)), gpu_bytes=held, policy="default", buffers=(file,))
        made.append(dataclasses.replace(one, rank=rank, **changes))
    return build.host(gpus=GPUS, processes=tuple(made))


def test_a_stray_context_on_the_other_socket_does_not_make_that_socket_near() -> None:
    host = strays(at=0)
    assert near.of_process(host, host.processes[0]) == near.of_buffer(host, host.buffers[0]) == {1}
    assert one(PLACEMENT, host).status is Status.FAIL
    assert one(ENFORCED, host).status is Status.WARN
    assert one(CUMEM, host).status is Status.FAIL
    assert one("engine.binding", host).status is Status.WARN
    assert one("engine.memory-locality", host).status is Status.UNKNOWN
    assert topology(host)["buffers"][0]["placement"] == "far"


def test_the_same_ranks_with_their_file_at_home_and_bound_pass_and_say_which_gpu_counts() -> None:
    host = strays(at=1, policy="bind:1")
    for id in (PLACEMENT, ENFORCED, "engine.binding", "engine.memory-locality"):
        found = one(id, host)
        assert found.status is Status.PASS, id
        assert any("works on 0000:c3:00.0" in item.text for item in found.evidence), id


@pytest.mark.parametrize("stray_bytes", [80 * build.GIB, 30 * build.GIB, None])
def test_similar_or_untold_amounts_on_two_sockets_are_unknown(stray_bytes: int | None) -> None:
    host = strays(at=0, stray_bytes=stray_bytes)
    assert near.of_process(host, host.processes[0]) is None
    for id in (PLACEMENT, ENFORCED, "engine.binding", "engine.memory-locality"):
        assert one(id, host).status is Status.UNKNOWN, id


def test_the_limit_is_four_times_what_the_other_sockets_hold() -> None:
    four = strays(at=0, stray_bytes=90 * build.GIB // 4)
    assert near.of_process(four, four.processes[0]) == {1}
    more = strays(at=0, stray_bytes=90 * build.GIB // 4 + 1)
    assert near.of_process(more, more.processes[0]) is None


def test_one_process_on_gpus_of_both_sockets_has_no_near_node() -> None:
    held = {GPUS[1].pci: 80 * build.GIB, GPUS[2].pci: 80 * build.GIB}
    file = build.buffer("aB3dE9", {0: build.RING_BYTES}, pids=(4242,))
    single = build.process(4242, 0, gpus=tuple(held), gpu_bytes=held, policy="default", buffers=(file,))
    host = build.host(gpus=GPUS, processes=(single,))
    for id in (PLACEMENT, ENFORCED, "engine.binding", "engine.memory-locality"):
        assert one(id, host).status is Status.UNKNOWN, id


@pytest.mark.parametrize("changes", [{"policy": "bind:0-1"}, {"policy": "default"}, {"shm_mount": hosts.shm("bind:0-1")}])
def test_what_lets_pages_land_on_two_sockets_holds_nothing_even_where_both_are_called_near(changes: dict[str, Any]) -> None:
    host = hosts.running(**changes, more={"near": frozenset({0, 1})})
    found = one(ENFORCED, host)
    assert found.status is Status.WARN
    assert "only socket" not in found.summary


def test_a_near_node_that_the_host_lacks_is_refused_with_what_it_has() -> None:
    host = dataclasses.replace(build.host(), near=frozenset({5}))
    assert near.of_process(host, host.processes[0]) is near.of_buffer(host, host.buffers[0]) is near.of_host(host) is None
    for id in (PLACEMENT, ENFORCED, CUMEM, "engine.binding", "nccl.shm-size"):
        (found,) = judge(id, host)
        assert found.status is Status.UNKNOWN
        assert found.summary == "--near names node 5, which this host lacks (it has node 0-1)"


def test_where_only_the_gpus_own_socket_has_memory_nothing_can_land_far() -> None:
    nodes = (build.node(0, memory=None, memoryless=True), build.node(1))
    host = dataclasses.replace(hosts.running(policy="default"), nodes=nodes)
    found = one(ENFORCED, host)
    assert found.status is Status.PASS
    assert "the only socket with memory" in found.summary
