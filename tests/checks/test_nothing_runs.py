"""What it takes to say that nothing runs, or that a group needs no host buffers: one rule for all checks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine, Host, Process
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one
from tests.checks.judging import status as worst_of

PLACEMENT, ENFORCED, CUMEM = "nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force"
#: Every check that asks whether a group exchanges anything through host memory.
SIX = (PLACEMENT, ENFORCED, CUMEM, "nccl.shm-size", "nccl.cumem-preconditions", "engine.cumem-environment")
NOBODY = {"gpus": [{"pci": build.gpu(i).pci, "processes": []} for i in (0, 1)]}


def idle(used_bytes: int, nvml: Any = NOBODY) -> Host:
    """No process seen, root, and that much GPU memory in use."""
    made = build.host(processes=())
    gpus = tuple(dataclasses.replace(gpu, memory_used_bytes=used_bytes) for gpu in made.gpus)
    return dataclasses.replace(made, gpus=gpus, sources={**made.sources, "nvml": build.source(data=nvml)})


@pytest.mark.parametrize(
    ("used_bytes", "status"),
    [
        (644_939_776, Status.NOT_APPLICABLE),
        (2 * build.GIB, Status.NOT_APPLICABLE),
        (2 * build.GIB + 1, Status.UNKNOWN),
        (90 * build.GIB, Status.UNKNOWN),
    ],
)
@pytest.mark.parametrize("id", [PLACEMENT, ENFORCED, CUMEM, "engine.binding", "nccl.shm-size"])
def test_memory_in_use_that_nobody_holds_forbids_to_say_that_nothing_runs(id: str, used_bytes: int, status: Status) -> None:
    found = one(id, idle(used_bytes))
    assert found.status is status
    assert status is Status.NOT_APPLICABLE or "in use by processes that do not show" in found.summary


def test_memory_that_nobody_holds_stands_beside_the_replicas() -> None:
    made = build.host()
    mine = tuple(dataclasses.replace(p, gpus=(build.gpu(0).pci,), gpu_bytes={build.gpu(0).pci: 1}) for p in made.processes)
    host = dataclasses.replace(made, processes=mine, sources={**made.sources, "nvml": build.source(data=NOBODY)})
    found = judge(PLACEMENT, host)
    assert [finding.status for finding in found] == [Status.PASS, Status.UNKNOWN]
    assert "0000:c2:00.0" in found[1].summary


def servant(comm: str) -> Process:
    both = {build.gpu(i).pci: 30 << 20 for i in (0, 1)}
    return dataclasses.replace(
        build.process(),
        gpus=tuple(both),
        gpu_bytes=both,
        comm=comm,
        title=comm,
        command=(comm,),
        engine=None,
        rank=None,
        container=None,
        buffers=(),
    )


@pytest.mark.parametrize("comm", ["nvidia-cuda-mps", "Xorg"])
def test_a_lone_servant_is_no_engine(comm: str) -> None:
    small = tuple(build.gpu(i, memory_used_bytes=build.IDLE_BYTES) for i in (0, 1))
    host = dataclasses.replace(build.host(processes=(servant(comm),), gpus=small, containers=()), replicas=())
    for id in (*SIX, "engine.binding"):
        assert one(id, host).status in (Status.NOT_APPLICABLE, Status.PASS), id
    assert one(PLACEMENT, host).status is Status.NOT_APPLICABLE


def linked(word: str = "NV18", environ: dict[str, str] | None = None, p2p: str = "ok", **changes: Any) -> Host:
    """Two ranks without a log and without a file, their GPUs linked so; small shm, so that no check passes by chance."""
    gpus = (build.gpu(0, links={build.gpu(1).pci: word}, p2p={build.gpu(1).pci: p2p}), build.gpu(1))
    box = build.container(environ={"NCCL_CUMEM_ENABLE": "0"} if environ is None else environ)
    ranks = hosts.ranks(**{"policy": "default", "buffers": (), "shm_size_bytes": 64 << 20, "shm_free_bytes": 64 << 20, **changes})
    return build.host(gpus=gpus, processes=ranks, containers=(box,))


@pytest.mark.parametrize("id", SIX)
def test_an_nvlink_pair_without_a_log_needs_no_host_buffers_for_any_check(id: str) -> None:
    assert one(id, linked()).status is Status.NOT_APPLICABLE


@pytest.mark.parametrize("id", SIX)
@pytest.mark.parametrize(
    "host",
    [
        linked("SYS"),
        linked(environ={"NCCL_P2P_DISABLE": "1"}),
        linked(environ={"NCCL_P2P_LEVEL": "LOC"}),
        linked(p2p="chipset-not-supported"),
        linked(buffers=(hosts.far_file(),)),
        linked(buffers_reason="permission denied"),
        linked(nccl_log=hosts.log(hosts.FILES)),
    ],
    ids=["no NVLink", "P2P off", "P2P level", "P2P not possible", "files", "files unread", "a log with files"],
)
def test_what_speaks_against_nvlink_alone_holds_for_every_check(id: str, host: Host) -> None:
    assert one(id, host).status is not Status.NOT_APPLICABLE


@pytest.mark.parametrize("id", SIX)
def test_nvlink_without_a_known_environment_frees_nobody(id: str) -> None:
    dark = linked(container=None, unit=None, environ=None)
    dark = dataclasses.replace(dark, containers=(), units=())
    dark = dataclasses.replace(dark, processes=tuple(dataclasses.replace(p, environ=None) for p in dark.processes))
    assert one(id, dark).status is not Status.NOT_APPLICABLE


@pytest.mark.parametrize("path", ["/etc/nccl.conf"])
def test_a_conf_file_that_turns_p2p_off_counts(path: str) -> None:
    host = linked(container=None, environ=None)
    ranks = tuple(dataclasses.replace(p, environ={"NCCL_CUMEM_ENABLE": "0"}) for p in host.processes)
    host = dataclasses.replace(host, processes=ranks, containers=(), units=())
    assert one(PLACEMENT, host).status is Status.NOT_APPLICABLE
    sources = {**host.sources, "nccl.conf": build.source(data={path: "NCCL_P2P_DISABLE=1"})}
    assert one(PLACEMENT, dataclasses.replace(host, sources=sources)).status is Status.UNKNOWN


@pytest.mark.parametrize("id", SIX)
def test_two_engines_of_one_gpu_each_need_no_host_buffers(id: str) -> None:
    free: dict[str, Any] = {"engine": Engine.VLLM, "container": None, "buffers": (), "policy": "default", "environ": {}}
    made = [build.process(4242, 0, ppid=1, **free), build.process(5252, 1, ppid=1, **free)]
    a, b = (dataclasses.replace(p, rank=None, title="vllm", comm="vllm") for p in made)
    replicas = (build.replica((a,), name="a", engine=Engine.VLLM), build.replica((b,), name="b", engine=Engine.VLLM))
    host = build.host(processes=(a, b), containers=(), units=(), replicas=replicas)
    assert [finding.status for finding in judge(id, host)] == [Status.NOT_APPLICABLE] * 2


def test_a_rank_whose_log_tells_of_a_partner_is_not_alone() -> None:
    alone = build.host(
        processes=hosts.ranks(1, buffers=(), policy="default", nccl_log=hosts.log(hosts.FILES)), gpus=(build.gpu(0),)
    )
    assert one(CUMEM, alone).status is Status.FAIL


def test_a_reader_that_hung_is_not_an_engine_without_buffers() -> None:
    first, second = hosts.ranks()
    hung = dataclasses.replace(second, buffers=(), buffers_reason="its reading stopped early: no answer in 1.5 s")
    found = one(PLACEMENT, build.host(processes=(first, hung)))
    assert found.status is Status.UNKNOWN and "no answer in 1.5 s" in found.summary


@pytest.mark.parametrize("id", [PLACEMENT, ENFORCED, CUMEM, "nccl.shm-size", "engine.cumem-environment"])
def test_a_process_whose_reading_stopped_is_no_proof_that_nothing_runs(id: str) -> None:
    dark: dict[str, Any] = {"buffers": (), "gpus": (), "gpu_bytes": {}, "rank": None, "engine": None, "container": None}
    unread = dataclasses.replace(hosts.ranks()[0], **dark, buffers_reason="its reading stopped early: no answer in 3 s")
    quiet = dataclasses.replace(idle(0, {"gpus": []}), replicas=(), containers=())
    found = one(id, dataclasses.replace(quiet, processes=(unread,)))
    assert found.status is Status.UNKNOWN and "no answer in 3 s" in found.summary
    read = dataclasses.replace(unread, buffers_reason=None)
    assert one(id, dataclasses.replace(quiet, processes=(read,))).status is Status.NOT_APPLICABLE


def test_near_free_and_enforced_agree_where_the_gpus_own_socket_has_no_memory() -> None:
    nodes = (build.node(0), build.node(1, memory=None, memoryless=True))
    ranks = hosts.ranks(policy="default", mems_allowed=frozenset({0}), buffers=(hosts.far_file(),))
    host = build.host(nodes=nodes, processes=ranks)
    assert one(ENFORCED, host).status is Status.FAIL
    assert worst_of("memory.near-free", host) == "fail"
    other = build.host(nodes=(build.node(0, memory=None, memoryless=True), build.node(1)), processes=())
    assert worst_of("memory.near-free", other) == "not-applicable"


def test_near_free_refuses_a_near_node_that_the_host_lacks() -> None:
    assert worst_of("memory.near-free", build.host(near=frozenset({5}))) == "unknown"
    assert worst_of("memory.near-free", build.host(near=frozenset({1}))) == "pass"
