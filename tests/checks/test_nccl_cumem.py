"""nccl.cumem-in-force and nccl.cumem-preconditions in an audit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine, Host
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one

IN_FORCE, PRECONDITIONS = "nccl.cumem-in-force", "nccl.cumem-preconditions"
ON = {"environ": {"NCCL_CUMEM_ENABLE": "1"}, "image": "lmsysorg/sglang:v0.5.23"}


def driver(cuda: int | None) -> dict[str, Any]:
    return {"driver": dataclasses.replace(build.host().driver, cuda=cuda)}


def test_the_logs_of_all_ranks_with_cumem_buffers_pass() -> None:
    found = one(IN_FORCE, hosts.unbound(buffers=(), nccl_log=hosts.log(hosts.CUMEM)))
    assert found.status is Status.PASS
    assert any("CUMEM allocated" in item.text for item in found.evidence)


def test_the_log_of_one_rank_is_no_pass() -> None:
    first, second = hosts.ranks(policy="default", buffers=())
    loud = dataclasses.replace(first, nccl_log=hosts.log(hosts.CUMEM))
    assert one(IN_FORCE, build.host(processes=(loud, second))).status is Status.UNKNOWN


def test_a_mapped_ring_file_outranks_a_log_that_shows_none() -> None:
    found = one(IN_FORCE, hosts.unbound(nccl_log=hosts.log(hosts.CUMEM)))
    assert found.status is Status.FAIL
    assert "2 ring buffers are files" in found.summary


def test_a_log_with_files_fails_with_its_reason() -> None:
    found = one(IN_FORCE, hosts.unbound(nccl_log=hosts.log(hosts.FILES)))
    assert found.status is Status.FAIL
    assert "NCCL_CUMEM_ENABLE is 0" in found.summary


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": "bind:1"},
        {"policy": "default", "mems_allowed": frozenset({1})},
        {"policy": "default", "shm_mount": hosts.shm("bind:1")},
    ],
)
@pytest.mark.parametrize("text", [None, hosts.log(hosts.FILES)])
def test_near_files_held_by_policy_cpuset_or_mount_make_it_not_applicable(changes: dict[str, Any], text: str | None) -> None:
    assert one(IN_FORCE, hosts.running(**changes, nccl_log=text)).status is Status.NOT_APPLICABLE


def test_far_files_of_a_bound_process_still_fail() -> None:
    assert one(IN_FORCE, hosts.running(buffers=(hosts.far_file(),))).status is Status.FAIL


def test_near_files_by_luck_fail() -> None:
    assert one(IN_FORCE, hosts.unbound()).status is Status.FAIL


def test_p2p_only_is_not_applicable_whatever_the_variable() -> None:
    assert one(IN_FORCE, hosts.unbound(buffers=(), nccl_log=hosts.log(hosts.P2P))).status is Status.NOT_APPLICABLE


def test_nothing_running_is_not_applicable_and_unseen_is_unknown() -> None:
    idle = build.host(processes=())
    assert one(IN_FORCE, idle).status is Status.NOT_APPLICABLE
    assert one(IN_FORCE, dataclasses.replace(idle, uid=1000)).status is Status.UNKNOWN


def test_neither_log_nor_file_is_unknown_with_the_line_to_set() -> None:
    found = one(IN_FORCE, hosts.unbound(buffers=()))
    assert found.status is Status.UNKNOWN
    assert found.remedy is not None and "-e NCCL_DEBUG=INFO" in found.remedy


def test_unreadable_buffers_are_unknown() -> None:
    found = one(IN_FORCE, hosts.unbound(buffers=(), buffers_reason="permission denied"))
    assert found.status is Status.UNKNOWN and "permission denied" in found.summary


REASONS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    ("off", {"environ": {"NCCL_CUMEM_ENABLE": "0"}}, {}, {}, "NCCL_CUMEM_ENABLE=0"),
    ("unset under SGLang", {"environ": {}}, {}, {}, "sets it to 0"),
    (
        "host path off",
        {**ON, "environ": {"NCCL_CUMEM_ENABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"}},
        {},
        {},
        "NCCL_CUMEM_HOST_ENABLE=0",
    ),
    ("no SYS_NICE", {**ON, "cap_add": ()}, {"sys_nice": False}, {}, "CAP_SYS_NICE"),
    ("not root", ON, {"uid": 1000}, {}, "not root in its container"),
    ("old driver", ON, {}, driver(12040), "CUDA 12.4"),
    ("overwritten", {**ON, "image": "lmsysorg/sglang:v0.4.3"}, {}, {}, "overwrites it"),
]


@pytest.mark.parametrize(("box", "changes", "more", "text"), [case[1:] for case in REASONS], ids=[case[0] for case in REASONS])
def test_files_without_a_log_fail_with_the_reason_that_the_host_shows(
    box: dict[str, Any], changes: dict[str, Any], more: dict[str, Any], text: str
) -> None:
    found = one(IN_FORCE, hosts.running(box=box, more=more, policy="default", **changes))
    assert found.status is Status.FAIL
    assert text in found.summary


def test_one_process_with_two_gpus_is_named() -> None:
    both = {build.gpu(0).pci: 1, build.gpu(1).pci: 1}
    single = dataclasses.replace(build.process(), policy="default", gpus=tuple(both), gpu_bytes=both)
    found = one(IN_FORCE, build.host(processes=(single,), containers=(build.container(**ON),)))
    assert found.status is Status.FAIL and "share a process" in found.summary


def test_where_nothing_shows_the_reason_it_says_so() -> None:
    found = one(IN_FORCE, hosts.running(box=ON, policy="default"))
    assert found.status is Status.FAIL and "nothing that the host shows says why" in found.summary


def asked(changes: dict[str, Any] | None = None, box: dict[str, Any] | None = None, more: dict[str, Any] | None = None) -> Host:
    return hosts.running(box={**ON, **(box or {})}, more=more, **{"policy": "default", "buffers": (), **(changes or {})})


VERSION = hosts.log(("NCCL version 2.30.7+cuda13.0", "NCCL_CUMEM_ENABLE set by environment to 1."))


def test_preconditions_pass_where_all_are_known_to_hold() -> None:
    found = one(PRECONDITIONS, asked({"nccl_log": VERSION}))
    assert found.status is Status.PASS
    assert "NCCL 2.30.7" in found.summary


def test_cumem_in_force_proves_its_preconditions() -> None:
    assert one(PRECONDITIONS, asked({"nccl_log": hosts.log(hosts.CUMEM), "sys_nice": None})).status is Status.PASS


def test_preconditions_are_unknown_without_nccls_version() -> None:
    found = one(PRECONDITIONS, asked())
    assert found.status is Status.UNKNOWN and "version" in found.summary


NO_P2P = {
    "gpus": (
        build.gpu(0, p2p={build.gpu(1).pci: "chipset-not-supported"}),
        build.gpu(1, p2p={build.gpu(0).pci: "chipset-not-supported"}),
    )
}
P2P_OK = {"gpus": (build.gpu(0, p2p={build.gpu(1).pci: "ok"}), build.gpu(1))}
EMPTY_NODE = {"nodes": (build.node(0), build.node(1), dataclasses.replace(build.node(0), id=2, memory=None, memoryless=True))}
CPULESS = {"nodes": (build.node(0), build.node(1), dataclasses.replace(build.node(0), id=2, cpus=frozenset()))}
BAD: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("driver", {"nccl_log": VERSION}, driver(12040), "CUDA 12.4"),
    ("no P2P", {"nccl_log": VERSION}, {**driver(12080), **NO_P2P}, "no P2P between 1 of 1 GPU pairs"),
    ("memoryless", {"nccl_log": VERSION}, EMPTY_NODE, "node 2 without memory"),
    ("CPU-less", {"nccl_log": VERSION}, CPULESS, "node 2 without memory or without CPUs"),
    ("SYS_NICE", {"nccl_log": VERSION, "sys_nice": False}, {}, "CAP_SYS_NICE"),
    ("user", {"nccl_log": VERSION, "uid": 1000}, {}, "not root"),
    ("NCCL 2.21", {"nccl_log": hosts.log(("NCCL version 2.21.5+cuda12.4",))}, {}, "2.21.5"),
    ("NCCL 2.23", {"nccl_log": hosts.log(("NCCL version 2.23.4+cuda12.4",))}, {}, "2.23.4"),
]


@pytest.mark.parametrize(("changes", "more", "text"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_precondition_that_does_not_hold_fails_if_asked_for_and_warns_otherwise(
    changes: dict[str, Any], more: dict[str, Any], text: str
) -> None:
    found = one(PRECONDITIONS, asked(changes, more=more))
    assert found.status is Status.FAIL and text in found.summary
    quiet = one(PRECONDITIONS, asked({**changes, "nccl_log": changes["nccl_log"].replace("to 1.", "to 0.")}, {"environ": {}}, more))
    assert quiet.status is Status.WARN and text in quiet.summary


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({**driver(12080), **P2P_OK}, Status.PASS),
        (driver(12080), Status.UNKNOWN),
        (driver(None), Status.UNKNOWN),
        ({"nodes": ()}, Status.UNKNOWN),
    ],
)
def test_p2p_driver_and_nodes_have_to_be_known(more: dict[str, Any], status: Status) -> None:
    assert one(PRECONDITIONS, asked({"nccl_log": VERSION}, more=more)).status is status


@pytest.mark.parametrize("box", [{"privileged": True}, {"security_opt": ("seccomp=unconfined",)}, {"runtime": "podman"}])
def test_sys_nice_is_not_needed_where_no_profile_stands_before_mbind(box: dict[str, Any]) -> None:
    assert one(PRECONDITIONS, asked({"nccl_log": VERSION, "sys_nice": False, "uid": 1000}, box)).status is Status.PASS


def test_unread_capabilities_are_unknown() -> None:
    assert one(PRECONDITIONS, asked({"nccl_log": VERSION, "sys_nice": None})).status is Status.UNKNOWN


def test_preconditions_do_not_apply_to_a_bound_replica_to_p2p_or_without_a_gpu() -> None:
    assert one(PRECONDITIONS, hosts.running(sys_nice=False)).status is Status.NOT_APPLICABLE
    assert one(PRECONDITIONS, hosts.unbound(buffers=(), nccl_log=hosts.log(hosts.P2P))).status is Status.NOT_APPLICABLE
    assert one(PRECONDITIONS, build.host(processes=(), gpus=())).status is Status.NOT_APPLICABLE


def test_with_nothing_running_the_hosts_own_part_is_judged() -> None:
    assert one(PRECONDITIONS, build.host(processes=())).status is Status.PASS
    found = one(PRECONDITIONS, build.host(processes=(), **driver(12040)))
    assert found.status is Status.WARN and found.subject == "gpu1"


def test_two_replicas_get_a_finding_each() -> None:
    a = build.process(4242, 0, engine=Engine.VLLM, container=None, buffers=(), policy="default", environ={"NCCL_CUMEM_ENABLE": "1"})
    b = build.process(5252, 1, ppid=1, engine=Engine.VLLM, container=None, buffers=(), policy="bind:1", environ={})
    host = build.host(processes=(a, b), containers=(), replicas=(build.replica((a,), name="a"), build.replica((b,), name="b")))
    assert [finding.subject for finding in judge(IN_FORCE, host)] == ["replica a", "replica b"]
