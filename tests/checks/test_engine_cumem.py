"""engine.cumem-environment: what becomes of the user's NCCL_CUMEM_ENABLE."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine, Host
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one

ID = "engine.cumem-environment"
ONE, ZERO = {"NCCL_CUMEM_ENABLE": "1"}, {"NCCL_CUMEM_ENABLE": "0"}
SYMM = ("python3", "-m", "sglang.launch_server", "--enable-symm-mem")


def sglang(tag: str, **box: Any) -> dict[str, Any]:
    return {"image": f"docker.example:5000/lmsysorg/sglang:{tag}", **box}


CASES: list[tuple[str, dict[str, Any], Status, str]] = [
    ("new and asked", sglang("v0.5.23-cu130", environ=ONE), Status.PASS, "SGLang 0.5.23 leaves it alone"),
    ("the first that honours", sglang("v0.5.4.post2", environ=ONE), Status.PASS, "leaves it alone"),
    ("the last that does not", sglang("v0.5.4.post1", environ=ONE), Status.FAIL, "overwrites it"),
    ("its base release", sglang("v0.5.4", environ=ONE), Status.FAIL, "overwrites it"),
    ("a candidate", sglang("v0.5.5rc1", environ=ONE), Status.PASS, "leaves it alone"),
    ("old", sglang("v0.4.3", environ=ONE), Status.FAIL, "0.5.4.post2"),
    (
        "a community image's tag says nothing",
        {"image": "someone/sglang:v0.4.3", "environ": ONE},
        Status.UNKNOWN,
        "release is not known",
    ),
    ("latest says nothing", sglang("latest", environ=ONE), Status.UNKNOWN, "release is not known"),
    ("unset", sglang("v0.5.23", environ={}), Status.FAIL, "sets it to 0"),
    ("off", sglang("v0.5.23", environ=ZERO), Status.FAIL, "NCCL_CUMEM_ENABLE=0"),
    ("host path off", sglang("v0.5.23", environ={**ONE, "NCCL_CUMEM_HOST_ENABLE": "0"}), Status.FAIL, "NCCL_CUMEM_HOST_ENABLE=0"),
    ("symmetric memory", sglang("v0.5.23", environ={}, command=SYMM), Status.PASS, "--enable-symm-mem"),
    ("symmetric memory over 0", sglang("v0.5.4.post3", environ=ZERO, command=SYMM), Status.PASS, "--enable-symm-mem"),
    ("0 before it was forced", sglang("v0.5.4.post2", environ=ZERO, command=SYMM), Status.FAIL, "NCCL_CUMEM_ENABLE=0"),
]


@pytest.mark.parametrize(("box", "status", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_sglangs_release_decides_on_the_users_value(box: dict[str, Any], status: Status, text: str) -> None:
    found = one(ID, hosts.running(box=box, policy="default"))
    assert found.status is status
    assert text in found.summary


def other(engine: Engine | None, environ: dict[str, str] | None, image: str = "x", **changes: Any) -> Host:
    host = hosts.running(box={"image": image, "environ": environ or {}}, policy="default", engine=engine, **changes)
    return dataclasses.replace(host, replicas=(dataclasses.replace(host.replicas[0], engine=engine),))


@pytest.mark.parametrize(
    ("engine", "environ", "image", "status"),
    [
        (Engine.VLLM, ONE, "vllm/vllm-openai:v0.33.0", Status.PASS),
        (Engine.VLLM, ONE, "vllm/vllm-openai:v0.8.5", Status.UNKNOWN),
        (Engine.VLLM, ONE, "vllm/vllm-openai:latest", Status.UNKNOWN),
        (Engine.VLLM, {}, "vllm/vllm-openai:v0.33.0", Status.WARN),
        (Engine.VLLM, ZERO, "vllm/vllm-openai:v0.33.0", Status.FAIL),
        (None, ONE, "trainer", Status.PASS),
        (None, {}, "trainer", Status.WARN),
    ],
)
def test_other_engines_get_what_they_are_given(engine: Engine | None, environ: dict[str, str], image: str, status: Status) -> None:
    assert one(ID, other(engine, environ, image)).status is status


@pytest.mark.parametrize(
    ("value", "given", "status", "text"),
    [
        ("1", ONE, Status.PASS, "NCCL says"),
        ("0", ONE, Status.FAIL, "overwrote"),
        ("0", {}, Status.FAIL, "NCCL says"),
    ],
)
def test_nccls_own_line_outranks_what_was_given(value: str, given: dict[str, str], status: Status, text: str) -> None:
    log = hosts.log((f"NCCL_CUMEM_ENABLE set by environment to {value}.",))
    found = one(ID, hosts.running(box={"environ": given}, policy="default", nccl_log=log))
    assert found.status is status and text in found.summary


def test_one_rank_with_0_in_its_log_is_enough_to_fail() -> None:
    first, second = hosts.ranks(policy="default")
    logs = [hosts.log((f"NCCL_CUMEM_ENABLE set by environment to {value}.",)) for value in "10"]
    processes = (dataclasses.replace(first, nccl_log=logs[0]), dataclasses.replace(second, nccl_log=logs[1]))
    assert one(ID, build.host(processes=processes)).status is Status.FAIL


def test_a_bound_replica_that_does_not_ask_is_not_applicable_and_a_wish_in_vain_warns() -> None:
    assert one(ID, hosts.running(box={"environ": {}})).status is Status.NOT_APPLICABLE
    assert one(ID, hosts.running(box={"environ": ONE})).status is Status.UNKNOWN
    found = one(ID, hosts.running(box=sglang("v0.4.3", environ=ONE)))
    assert found.status is Status.WARN and "holds the buffers near" in found.summary


def test_a_wiped_environ_is_unknown_unless_launcher_or_unit_tell() -> None:
    bare: dict[str, Any] = {"container": None, "environ": None, "policy": "default"}
    host = hosts.running(**bare)
    host = dataclasses.replace(host, containers=(), units=(), replicas=(dataclasses.replace(host.replicas[0], container=None),))
    assert one(ID, host).status is Status.UNKNOWN
    launcher = dataclasses.replace(host.processes[0], pid=4000, rank=None, environ=ZERO, buffers=(), gpus=(), gpu_bytes={})
    replica = dataclasses.replace(host.replicas[0], pids=(4242, 4243, 4000))
    told = dataclasses.replace(host, processes=(*host.processes, launcher), replicas=(replica,))
    assert one(ID, told).status is Status.FAIL
    unit = build.unit(id="e.service", exec_start="/usr/bin/env NCCL_CUMEM_ENABLE=0 python3 -m sglang.launch_server")
    by_unit = dataclasses.replace(host, units=(unit,), replicas=(dataclasses.replace(host.replicas[0], unit="e.service"),))
    found = one(ID, by_unit)
    assert found.status is Status.FAIL
    assert any(item.source == "systemctl show e.service" for item in found.evidence)


def test_where_nothing_is_exchanged_through_host_memory_it_does_not_apply() -> None:
    assert one(ID, build.host(processes=())).status is Status.NOT_APPLICABLE
    assert one(ID, build.host(processes=(), uid=1000)).status is Status.UNKNOWN
    assert one(ID, hosts.unbound(nccl_log=hosts.log(hosts.P2P), buffers=())).status is Status.NOT_APPLICABLE
    assert one(ID, build.host(processes=hosts.ranks(1, policy="default", buffers=()))).status is Status.NOT_APPLICABLE


def test_two_processes_of_one_parent_are_not_taken_for_single_ranks() -> None:
    stray = hosts.ranks(policy="default", buffers=(), engine=None, container=None, environ={"NCCL_CUMEM_ENABLE": "0"})
    strays = tuple(dataclasses.replace(process, rank=None, nccl_log=None) for process in stray)
    host = dataclasses.replace(build.host(processes=strays, containers=()), replicas=())
    assert [finding.status for finding in judge(ID, host)] == [Status.FAIL, Status.FAIL]
