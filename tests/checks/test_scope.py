"""What every check does where its question does not arise or nothing could be read."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.host import Host
from tests import build
from tests.checks.judging import checks, findings, one, status, without_gpu

MINE = [
    "container.gpus-visible",
    "driver.conflicting-module",
    "driver.dkms-next-kernel",
    "driver.package-holds",
    "driver.persistence",
    "driver.versions-match",
    "gpu.ecc",
    "gpu.present",
    "gpu.throttling",
    "host.daemon-reload-risk",
    "host.tuned-profile",
    "host.unattended-upgrades",
    "kernel.numa-balancing",
    "kernel.zone-reclaim-mode",
    "memory.near-free",
    "memory.shm-mount-policy",
    "memory.zfs-arc",
    "topology.gpu-node",
    "topology.node-population",
    "topology.pcie-link",
]
ONE_SOCKET = ["kernel.numa-balancing", "kernel.zone-reclaim-mode", "memory.near-free", "memory.shm-mount-policy", "memory.zfs-arc"]


def unread(status: str) -> Host:
    """A host of which nothing could be read, every source with this status."""
    names = ("pci", "nvml", "nodes", "processes", "containers", "packages", "kernel.sysctl", "kernel.modules", "mounts", "tuned")
    return without_gpu(
        nodes=(),
        sockets=(),
        sysctl={},
        modules=frozenset(),
        sources={name: build.source(status=status, reason="as told") for name in names},
    )


@pytest.mark.parametrize("id", MINE)
def test_without_a_gpu_the_check_does_not_apply_and_says_what_was_read(id: str) -> None:
    finding = one(id, without_gpu())
    assert finding.status.value == "not-applicable"
    assert "pci was read and lists no GPU" in finding.summary
    assert "no libnvidia-ml.so.1" in finding.summary


@pytest.mark.parametrize("id", MINE)
@pytest.mark.parametrize("how", ["denied", "timeout", "error"])
def test_what_could_not_be_read_is_unknown_and_says_why(id: str, how: str) -> None:
    finding = one(id, unread(how))
    assert finding.status.value == "unknown"
    assert "as told" in finding.summary


@pytest.mark.parametrize("id", MINE)
def test_a_snapshot_without_any_source_never_passes(id: str) -> None:
    assert status(id, without_gpu(nodes=(), sysctl={}, sources={})) == "unknown"


@pytest.mark.parametrize("id", MINE)
def test_a_machine_without_a_pci_bus_has_no_gpu(id: str) -> None:
    host = without_gpu(
        sources={"pci": build.source(status="absent", reason="no such folder"), "nvml": build.source(status="absent")}
    )
    assert status(id, host) == "not-applicable"


def test_a_hung_nvml_beside_a_pci_bus_without_gpus_does_not_matter() -> None:
    host = without_gpu()
    hung = dataclasses.replace(host, sources={**host.sources, "nvml": build.source(status="timeout")})
    assert status("topology.gpu-node", hung) == "not-applicable"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("driver.files", build.source(data={"gpus/0000:c1:00.0/information": "Model: X"})),
        ("nvidia.smi", build.source("GPU 0: X (UUID: GPU-1)")),
        ("nvml", build.source(data={"gpus": [{"index": 0}]})),
    ],
)
def test_a_driver_at_work_beside_no_gpu_is_unknown(name: str, told: object) -> None:
    host = without_gpu()
    odd = dataclasses.replace(host, sources={**host.sources, name: told})  # type: ignore[arg-type]
    assert status("topology.gpu-node", odd) == "unknown"


@pytest.mark.parametrize("id", ONE_SOCKET)
def test_on_one_socket_nothing_can_be_far(id: str) -> None:
    single = build.host(nodes=(build.node(0, distances=(10,)),), gpus=(build.gpu(0, node=0, socket=0),), processes=())
    assert status(id, single) == "not-applicable"
    two_of_one = build.host(nodes=(build.node(0), build.node(1, socket=0)), gpus=(build.gpu(0, socket=0),), processes=())
    assert status(id, two_of_one) == "not-applicable"


@pytest.mark.parametrize("id", ONE_SOCKET)
def test_a_kernel_without_numa_has_one_node(id: str) -> None:
    host = build.host(nodes=(), sources={"nodes": build.source(status="absent", reason="no such folder")}, processes=())
    assert status(id, host) == "not-applicable"


@pytest.mark.parametrize("id", ["kernel.numa-balancing", "memory.near-free", "topology.node-population"])
def test_the_users_word_on_near_nodes_is_enough_without_a_gpu(id: str) -> None:
    assert status(id, without_gpu(near=frozenset({0}))) == "pass"


def test_where_gpus_are_handed_to_virtual_machines_no_driver_is_judged() -> None:
    host = build.host(gpus=(build.gpu(0, driver="vfio-pci"), build.gpu(1, driver="vfio-pci")))
    for id in MINE:
        if id.startswith(("driver.", "gpu.")) or id == "host.unattended-upgrades":
            assert status(id, host) == "not-applicable"


def test_every_check_is_tested_here_or_in_its_own_file() -> None:
    ours = {id for id in checks() if not id.startswith(("nccl.", "engine."))}
    assert ours == {*MINE, "host.reachable"}


def test_every_docstring_works_out_the_five_statuses() -> None:
    for id in (*MINE, "host.reachable"):
        for word in ("pass", "warn", "fail", "unknown", "not-applicable"):
            assert f"- {word}" in checks()[id].explanation, f"{id}: {word}"


@pytest.mark.parametrize("id", [*MINE, "host.reachable"])
def test_odd_data_never_breaks_a_check(id: str) -> None:
    """Sources of the wrong shape: a snapshot of another version or by another hand."""
    for odd in (7, [], [7], {"a": 7}, {"gpus": 7}, {"gpus": [7]}, {"installed": 7, "nvidia_module": [], "default": 7}, None):
        names = (
            "nvml",
            "kernel.images",
            "timers",
            "tuned",
            "dev.char",
            "docker.info",
            "cdi",
            "packages.upgrades",
            "kernel.mm",
            "driver.files",
        )
        host = build.host(sources={**build.host().sources, **{name: build.source(data=odd) for name in names}})
        assert findings(id, host)
