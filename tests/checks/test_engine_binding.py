"""engine.binding, engine.memory-locality and engine.binding-conflict."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine, Host
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one

BINDING, LOCALITY, CONFLICT = "engine.binding", "engine.memory-locality", "engine.binding-conflict"
NEAR, FAR = build.node(1).cpus, build.node(0).cpus
ONE, ZERO, NONE = frozenset({1}), frozenset({0}), frozenset[int]()

#: What is in force on each rank (the lab's ways of binding), and what the two checks say.
CASES: list[tuple[str, dict[str, Any], Status, Status]] = [
    ("membind and CPUs near", {}, Status.PASS, Status.PASS),
    ("cpuset near", {"policy": "default", "mems_allowed": ONE}, Status.PASS, Status.PASS),
    ("unbound", {"policy": "default", "cpus": NEAR | FAR}, Status.WARN, Status.UNKNOWN),
    ("CPUs alone", {"policy": "default"}, Status.WARN, Status.UNKNOWN),
    ("prefer", {"policy": "prefer:1"}, Status.WARN, Status.UNKNOWN),
    ("interleave", {"policy": "interleave:0-1"}, Status.WARN, Status.WARN),
    ("weighted interleave", {"policy": "weighted interleave:0-1"}, Status.WARN, Status.WARN),
    ("membind, CPUs free", {"cpus": NEAR | FAR}, Status.WARN, Status.PASS),
    ("membind, CPUs far", {"cpus": FAR}, Status.FAIL, Status.PASS),
    ("membind far", {"policy": "bind:0"}, Status.FAIL, Status.FAIL),
    ("cpuset far", {"policy": "default", "mems_allowed": ZERO}, Status.FAIL, Status.FAIL),
    ("bind outside the cpuset holds the cpuset", {"policy": "bind:1", "mems_allowed": ZERO}, Status.FAIL, Status.FAIL),
    ("a bound mount binds no other memory", {"policy": "default", "shm_mount": hosts.shm("bind:1")}, Status.WARN, Status.UNKNOWN),
    ("policy unread", {"policy": None}, Status.UNKNOWN, Status.UNKNOWN),
    ("policy of no known form", {"policy": "bind:x"}, Status.UNKNOWN, Status.UNKNOWN),
    ("nothing read", {"policy": None, "mems_allowed": NONE}, Status.UNKNOWN, Status.UNKNOWN),
    ("cpuset unread, bound", {"mems_allowed": NONE}, Status.PASS, Status.PASS),
    ("CPUs unread", {"cpus": NONE}, Status.UNKNOWN, Status.PASS),
]


@pytest.mark.parametrize(("changes", "binding", "locality"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_live_policy_cpuset_and_cpus_decide(changes: dict[str, Any], binding: Status, locality: Status) -> None:
    host = hosts.running(**changes)
    assert one(BINDING, host).status is binding
    assert one(LOCALITY, host).status is locality


def test_arguments_do_not_count() -> None:
    asked = ("numactl", "--cpunodebind=1", "--membind=1", "python3", "-m", "sglang.launch_server")
    assert one(BINDING, hosts.running(box={"command": asked}, policy="default")).status is Status.WARN


def test_one_loose_rank_of_two_decides_and_is_named() -> None:
    first, second = hosts.ranks()
    found = one(BINDING, build.host(processes=(first, dataclasses.replace(second, policy="default"))))
    assert found.status is Status.WARN
    assert found.summary.startswith("1 of 2 ranks: rank 1 (pid 4243) may take memory from node 0-1")


@pytest.mark.parametrize("id", [BINDING, LOCALITY, CONFLICT])
def test_nothing_running_one_socket_and_unseen_processes(id: str) -> None:
    assert one(id, build.host(processes=())).status is Status.NOT_APPLICABLE
    assert one(id, hosts.one_socket()).status is Status.NOT_APPLICABLE
    assert one(id, build.host(processes=(), uid=1000)).status is Status.UNKNOWN


@pytest.mark.parametrize("id", [BINDING, LOCALITY])
def test_an_unknown_gpu_node_is_unknown_and_near_settles_it(id: str) -> None:
    lost = build.host(gpus=tuple(build.gpu(i, node=None, socket=None, claims=()) for i in (0, 1)))
    assert one(id, lost).status is Status.UNKNOWN
    assert one(id, dataclasses.replace(lost, near=ONE)).status is Status.PASS
    assert one(id, dataclasses.replace(lost, near=ZERO)).status is Status.FAIL


@pytest.mark.parametrize("id", [BINDING, LOCALITY])
def test_an_engine_without_a_gpu_yet_has_no_rank_to_judge(id: str) -> None:
    launcher = dataclasses.replace(build.process(), rank=None, gpus=(), gpu_bytes={}, buffers=())
    assert one(id, build.host(processes=(launcher,))).status is Status.UNKNOWN


def test_launchers_and_tokenizers_are_not_ranks() -> None:
    helper = dataclasses.replace(build.process(4000), rank=None, policy="default", gpu_bytes={}, buffers=())
    processes = (helper, *hosts.ranks())
    host = build.host(processes=processes)
    assert one(BINDING, host).status is Status.PASS


def test_both_replicas_are_judged_each_by_its_gpus() -> None:
    gpus = (build.gpu(0, node=0, socket=0), build.gpu(1))
    a, b = build.process(4242, 0, policy="bind:0", cpus=FAR), build.process(5252, 1, policy="bind:0", cpus=FAR)
    replicas = (build.replica((a,), name="a\nb"), build.replica((b,), name="b"))
    found = judge(BINDING, build.host(gpus=gpus, processes=(a, b), replicas=replicas))
    assert [(f.subject, f.status) for f in found] == [(r"replica a\nb", Status.PASS), ("replica b", Status.FAIL)]


def test_the_group_over_two_sockets_is_bound_rank_by_rank() -> None:
    group = hosts.two_sockets_group()
    assert one(BINDING, group).status is Status.PASS
    loose = tuple(dataclasses.replace(p, policy="default") for p in group.processes)
    found = one(BINDING, dataclasses.replace(group, processes=loose))
    assert found.status is Status.WARN
    assert found.remedy is not None and "SGLANG_AUTO_NUMA_BIND=1" in found.remedy and "cpuset" not in found.remedy


def test_under_snc_another_node_of_the_socket_is_near() -> None:
    assert one(BINDING, hosts.snc("bind:2", 2)).status is Status.PASS
    assert one(BINDING, hosts.snc("bind:1-2", 2)).status is Status.WARN


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"container": None, "unit": "vllm@a.service"},
            "systemctl set-property vllm@a.service AllowedMemoryNodes=1 AllowedCPUs=12-23,36-47",
        ),
        ({"container": None}, "numactl --cpunodebind=1 --membind=1"),
    ],
)
def test_the_remedy_fits_who_runs_it(changes: dict[str, Any], text: str) -> None:
    host = hosts.running(policy="default", **changes)
    replica = dataclasses.replace(host.replicas[0], container=None)
    units = (build.unit(id="vllm@a.service", exec_start="/usr/bin/vllm serve"),)
    found = one(BINDING, dataclasses.replace(host, replicas=(replica,), units=units, containers=()))
    assert found.remedy is not None and text in found.remedy


def unit_of(**changes: Any) -> dict[str, Any]:
    return {"units": (build.unit(exec_start="/usr/bin/docker run --name sglang sglang:patched", **changes),)}


OFFICIAL = "lmsysorg/sglang:v0.5.23-cu130"
CONFLICTS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], Status, str]] = [
    ("nobody", {}, {}, {}, Status.NOT_APPLICABLE, "no unit"),
    ("a near cpuset", {"cpuset_mems": "1"}, {"mems_allowed": ONE}, {}, Status.PASS, "the container's cpuset"),
    ("a far cpuset", {"cpuset_mems": "0"}, {"mems_allowed": ZERO}, {}, Status.FAIL, "binds to node 0, away from the GPU"),
    ("a cpuset of all nodes", {"cpuset_mems": "0-1"}, {}, {}, Status.PASS, "in agreement"),
    (
        "SGLang's binding inside a near cpuset",
        {"cpuset_mems": "1", "image": OFFICIAL, "environ": {}},
        {"mems_allowed": ONE},
        {},
        Status.PASS,
        "SGLANG_AUTO_NUMA_BIND",
    ),
    (
        "SGLang's binding in a cpuset without the GPU's node",
        {"cpuset_mems": "0", "environ": {"SGLANG_AUTO_NUMA_BIND": "1"}},
        {"mems_allowed": ZERO},
        {},
        Status.FAIL,
        "away from the GPU",
    ),
    (
        "SGLang's binding stripped",
        {"environ": {"SGLANG_AUTO_NUMA_BIND": "true"}},
        {"policy": "default"},
        {},
        Status.WARN,
        "not in force",
    ),
    ("SGLang's default in force", {"image": OFFICIAL, "environ": {}}, {}, {}, Status.PASS, "SGLANG_AUTO_NUMA_BIND"),
    (
        "SGLang's default off",
        {"image": OFFICIAL, "environ": {"SGLANG_AUTO_NUMA_BIND": "0"}},
        {},
        {},
        Status.NOT_APPLICABLE,
        "no unit",
    ),
    ("SGLang before the default", {"image": "lmsysorg/sglang:v0.5.17", "environ": {}}, {}, {}, Status.NOT_APPLICABLE, "no unit"),
    ("numactl in force", {"command": ("numactl", "--membind=1", "python3")}, {}, {}, Status.PASS, "numactl"),
    ("numactl stripped", {"command": ("numactl", "-m", "1", "python3")}, {"policy": "default"}, {}, Status.WARN, "not in force"),
    (
        "numactl far",
        {"command": ("numactl", "--membind", "0", "x")},
        {"policy": "bind:0"},
        {},
        Status.FAIL,
        "numactl binds to node 0",
    ),
    ("--numa-node near", {"command": ("x", "--numa-node", "1", "1")}, {}, {}, Status.PASS, "--numa-node"),
    ("vLLM's own", {"command": ("vllm", "serve", "--numa-bind")}, {}, {}, Status.PASS, "--numa-bind"),
    ("vLLM's own, stripped", {"command": ("vllm", "serve", "--numa-bind")}, {"policy": "default"}, {}, Status.WARN, "not in force"),
    (
        "vLLM's nodes",
        {"command": ("vllm", "--numa-bind", "--numa-bind-nodes", "0")},
        {},
        {},
        Status.FAIL,
        "--numa-bind-nodes binds",
    ),
    (
        "a unit that binds docker's client only",
        {},
        {"policy": "default"},
        unit_of(numa_policy="bind", numa_mask="1"),
        Status.WARN,
        "the unit's NUMAPolicy asks for node 1 and is not in force",
    ),
    ("a unit in agreement", {}, {}, unit_of(numa_policy="bind", numa_mask="1"), Status.PASS, "the unit's NUMAPolicy"),
    ("a unit's policy as a number", {}, {}, unit_of(numa_policy="2", numa_mask="1"), Status.PASS, "the unit's NUMAPolicy"),
    ("a unit's preference", {}, {}, unit_of(numa_policy="preferred", numa_mask="0"), Status.NOT_APPLICABLE, "no unit"),
    ("a unit's far nodes", {}, {}, unit_of(allowed_memory_nodes="0"), Status.FAIL, "AllowedMemoryNodes binds to node 0"),
    (
        "unit and cpuset of other nodes",
        {"cpuset_mems": "1"},
        {"mems_allowed": ONE},
        unit_of(allowed_memory_nodes="0"),
        Status.FAIL,
        "node 0",
    ),
]


@pytest.mark.parametrize(("box", "changes", "more", "status", "text"), [c[1:] for c in CONFLICTS], ids=[c[0] for c in CONFLICTS])
def test_owners_have_to_agree_with_each_other_the_gpu_and_what_is_in_force(
    box: dict[str, Any], changes: dict[str, Any], more: dict[str, Any], status: Status, text: str
) -> None:
    found = one(CONFLICT, hosts.running(box=box, more=more, **changes))
    assert found.status is status
    assert text in found.summary


def test_owners_with_overlapping_nodes_warn() -> None:
    box = {"cpuset_mems": "1", "command": ("numactl", "--membind=0-1", "x")}
    found = one(CONFLICT, hosts.running(box=box, mems_allowed=ONE))
    assert found.status is Status.WARN and "node 0-1" in found.summary


def test_under_snc_a_cpuset_without_the_gpus_own_node_breaks_sglangs_binding() -> None:
    made = hosts.snc("default", 2, mems_allowed=frozenset({2}))
    box = build.container(cpuset_mems="2", environ={"SGLANG_AUTO_NUMA_BIND": "1"})
    found = one(CONFLICT, dataclasses.replace(made, containers=(box,)))
    assert found.status is Status.FAIL
    assert "node 2" in found.summary and "node 3" in found.summary


def test_a_container_that_could_not_be_asked_is_unknown() -> None:
    host = build.host(containers=())
    denied = dataclasses.replace(host, sources={**host.sources, "containers": build.source(status="denied", reason="no socket")})
    found = one(CONFLICT, denied)
    assert found.status is Status.UNKNOWN and "denied" in found.summary


def test_a_bare_process_with_the_variable_in_its_own_environment() -> None:
    def made(value: str) -> Host:
        free: dict[str, Any] = {"container": None, "environ": {"SGLANG_AUTO_NUMA_BIND": value}, "engine": Engine.SGLANG}
        host = hosts.running(**free)
        return dataclasses.replace(host, containers=(), replicas=(dataclasses.replace(host.replicas[0], container=None),))

    assert one(CONFLICT, made("1")).status is Status.PASS
    assert one(CONFLICT, made("0")).status is Status.NOT_APPLICABLE
