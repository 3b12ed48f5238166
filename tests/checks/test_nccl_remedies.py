"""What the findings offer to paste, and how they name groups, logs and odd texts."""

from __future__ import annotations

import dataclasses
import shlex

import pytest

from nearsocket.model.finding import Status
from nearsocket.model.host import Engine, Host
from tests import build
from tests.checks import hosts
from tests.checks.judge import judge, one


def loose_group(engine: Engine | None) -> Host:
    """The group over two sockets, nothing bound."""
    made = hosts.two_sockets_group()
    processes = tuple(dataclasses.replace(p, policy="default", engine=engine) for p in made.processes)
    return dataclasses.replace(made, processes=processes, replicas=(build.replica(processes, engine=engine, sockets=(0, 1)),))


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        (Engine.SGLANG, "SGLANG_AUTO_NUMA_BIND=1"),
        (Engine.VLLM, "--numa-bind"),
        (None, "numactl --cpunodebind=NODE --membind=NODE"),
    ],
)
def test_over_two_sockets_each_rank_binds_itself(engine: Engine | None, text: str) -> None:
    found = one("engine.binding", loose_group(engine))
    assert found.remedy is not None and text in found.remedy and "SYS_NICE" in found.remedy


def test_podman_is_spoken_to_by_its_own_command() -> None:
    found = one("engine.binding", hosts.running(box={"runtime": "podman"}, policy="default"))
    assert found.remedy is not None and "podman update --cpuset-cpus=12-23,36-47 --cpuset-mems=1 sglang" in found.remedy


@pytest.mark.parametrize("name", ["$(reboot)", "a b", "-v", "", "x\ny"])
def test_commands_take_the_containers_id_where_its_name_is_no_plain_word(name: str) -> None:
    host = hosts.running(box={"name": name}, policy="default")
    found = one("engine.binding", host)
    assert found.remedy is not None
    line = next(line for line in found.remedy.splitlines() if line.startswith("docker"))
    assert shlex.split(line)[-1] == "0123456789ab"


def test_a_hostile_unit_name_is_quoted_in_commands() -> None:
    name = "a$(reboot);b.service"
    host = hosts.running(policy="default", container=None, unit=name)
    replica = dataclasses.replace(host.replicas[0], container=None, unit=name)
    host = dataclasses.replace(host, containers=(), replicas=(replica,), units=(build.unit(id=name, exec_start="/usr/bin/x"),))
    for id in ("engine.binding", "engine.cumem-environment"):
        for finding in judge(id, host):
            assert finding.remedy is None or name not in finding.remedy.replace(shlex.quote(name), "")


def test_evidence_of_a_log_names_its_path_and_line() -> None:
    first, second = hosts.ranks(policy="default", buffers=())
    host = build.host(processes=(dataclasses.replace(first, nccl_log=hosts.log(hosts.CUMEM), nspid=(4242, 132)), second))
    entries = [{"pid": 132, "path": "/run/nearsocket/sglang/1/nccl.h.132", "text": "", "size_bytes": 1}, "damaged"]
    host = dataclasses.replace(host, sources={**host.sources, "nccl.logs": build.source(data=entries)})
    found = one("nccl.cumem-in-force", host)
    assert any(item.source == "/run/nearsocket/sglang/1/nccl.h.132 line 6" for item in found.evidence)


def test_ranks_with_logs_of_their_own_are_judged_as_one() -> None:
    first, second = hosts.ranks(policy="default", buffers=())
    second_log = hosts.log(hosts.CUMEM).replace("4242:4242", "4243:4243").replace("rank 0", "rank 1")
    processes = (dataclasses.replace(first, nccl_log=hosts.log(hosts.CUMEM)), dataclasses.replace(second, nccl_log=second_log))
    host = build.host(processes=processes)
    assert one("nccl.cumem-in-force", host).status is Status.PASS
    assert one("nccl.buffer-placement", host).status is Status.PASS
    far = dataclasses.replace(second, nccl_log=second_log.replace("numa 1", "numa 0"))
    assert one("nccl.buffer-placement", build.host(processes=(processes[0], far))).status is Status.FAIL


def test_a_unit_whose_lists_cannot_be_read_owns_nothing() -> None:
    units = (
        build.unit(exec_start="/usr/bin/docker run --name sglang x", allowed_memory_nodes="all", numa_policy="bind", numa_mask="?"),
    )
    assert one("engine.binding-conflict", hosts.running(more={"units": units})).status is Status.NOT_APPLICABLE


def test_host_path_off_is_named_even_without_the_variable() -> None:
    box = {"environ": {"NCCL_CUMEM_HOST_ENABLE": "0"}, "image": "trainer"}
    host = hosts.running(box=box, policy="default", engine=None)
    host = dataclasses.replace(host, replicas=(dataclasses.replace(host.replicas[0], engine=None),))
    assert "NCCL_CUMEM_HOST_ENABLE=0 turns the host path off" in one("nccl.cumem-in-force", host).summary
