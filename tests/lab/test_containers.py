"""Where NCCL's pages land from inside containers: which bindings reach the ranks and which stop at the client. Full image only.

The containers run this guest's own Python from an imported root file system: no registry. They share the host's process numbers, so
that numa_maps is read from outside, as an audit does.
"""

from __future__ import annotations

import pytest

from lab import lifecycle
from lab.state import LabRecord
from tests.lab.host import RING_PAGES, LabHost, Placement
from tests.lab.test_placement import near

RANKS = "python3 /usr/local/lib/lab/ranks.py --ready /run/ranks/ready"
COMMON = "--name ranks --network none --pid host -v /run/ranks:/run/ranks"
SLICE = "[Slice]\\nAllowedMemoryNodes=0\\n"


@pytest.fixture(scope="module")
def prepared(booted: LabRecord, profile: str) -> LabHost:
    """The machine with the root file system imported into both engines, saved for each test to start from."""
    if profile != "full":
        pytest.skip("the small image has no container engines")
    machine = LabHost(booted, booted.machines[0])
    machine.reset()
    machine.sh(
        "lab-rootfs >/var/tmp/rootfs.tar; docker import /var/tmp/rootfs.tar lab; podman import -q /var/tmp/rootfs.tar lab",
        timeout_s=600,
    )
    machine.sh("rm /var/tmp/rootfs.tar; mkdir -p /run/ranks; sync; echo 3 >/proc/sys/vm/drop_caches")
    lifecycle.save(booted, booted.machines[0], "engines")
    return machine


@pytest.fixture
def engines(prepared: LabHost) -> LabHost:
    """That machine, node 0 full of page cache."""
    prepared.reset("engines")
    prepared.sh("lab-fill 0")
    return prepared


def run(host: LabHost, engine: str, options: str = "", inside: str = "", outside: str = "") -> Placement:
    """Run the ranks in a container and wait until they hold their buffers."""
    host.sh(f"{outside} {engine} run -d {COMMON} {options} lab {inside} {RANKS}")
    host.sh("for _ in $(seq 300); do [ -s /run/ranks/ready ] && exit 0; sleep 0.2; done; exit 1")
    return host.placement("$(cut -d' ' -f1 /run/ranks/ready)")


def unbound(found: Placement) -> None:
    """Nothing holds the buffers near; where they land is luck and not judged."""
    assert found.files == 16
    assert found.mems == "0-1"
    assert found.policy == "default"


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_cpus_alone_do_not_bind_memory(engines: LabHost, engine: str) -> None:
    unbound(run(engines, engine, "--ipc host --cpuset-cpus=0-1"))


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("ipc", ["--ipc host", "--shm-size=400m"], ids=["host-ipc", "private-shm"])
def test_memory_nodes_of_the_container_bind_without_a_capability(engines: LabHost, engine: str, ipc: str) -> None:
    found = run(engines, engine, f"{ipc} --cpuset-cpus=0-1 --cpuset-mems=0")
    near(found)
    assert found.mems == "0"


def test_numactl_around_docker_binds_the_client_only(engines: LabHost) -> None:
    unbound(run(engines, "docker", "--ipc host --cpuset-cpus=0-1", outside="numactl --membind=0"))


def test_numactl_around_podman_reaches_the_ranks(engines: LabHost) -> None:
    found = run(engines, "podman", "--ipc host --cpuset-cpus=0-1", outside="numactl --membind=0")
    near(found)
    assert found.policy == "bind:0"


def test_numactl_inside_docker_needs_a_capability(engines: LabHost) -> None:
    said = engines.fails("docker run --rm --network none lab numactl --membind=0 sh -c 'echo ran'")
    assert "ran" not in said.split()
    assert "does not support NUMA policy" in said  # what numactl makes of EPERM
    found = run(engines, "docker", "--ipc host --cpuset-cpus=0-1 --cap-add SYS_NICE", inside="numactl --membind=0")
    near(found)
    assert found.policy == "bind:0"


def test_a_slice_with_memory_nodes_binds_dockers_containers(engines: LabHost) -> None:
    engines.sh(f"printf '{SLICE}' >/run/systemd/system/replica.slice; systemctl daemon-reload; systemctl start replica.slice")
    found = run(engines, "docker", "--ipc host --cpuset-cpus=0-1 --cgroup-parent=replica.slice")
    near(found)
    assert found.mems == "0"


def test_a_unit_that_calls_docker_does_not_bind_the_container(engines: LabHost) -> None:
    unit = "systemd-run --quiet --wait -p NUMAPolicy=bind -p NUMAMask=0 -p AllowedMemoryNodes=0"
    unbound(run(engines, "docker", "--ipc host --cpuset-cpus=0-1", outside=unit))


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_bound_mount_as_dev_shm_lands_near_under_any_engine(engines: LabHost, engine: str) -> None:
    engines.sh("mkdir -p /run/near && mount -t tmpfs -o size=400m,mpol=bind:0 tmpfs /run/near")
    found = run(engines, engine, "-v /run/near:/dev/shm --cpuset-cpus=0-1")
    assert found.policy == "bind:0"
    assert found.mems == "0-1"
    assert found.pages == {0: RING_PAGES, 1: 0}
