"""Shapes and the emulator's command line: what the guest will see follows from values alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.qemu import Vm, arguments, topology_arguments
from lab.shapes import SHAPES, Shape, shape


def vm(of: Shape, accel: str = "tcg", loadvm: str | None = None) -> Vm:
    return Vm("lab", "8c1b5b8e-0000-4000-8000-000000000001", of, accel, Path("/c/vmlinuz"), "initrd", "disk.qcow2", 2222, loadvm)


@pytest.mark.parametrize("one", SHAPES.values(), ids=lambda one: one.name)
def test_every_core_belongs_to_exactly_one_node(one: Shape) -> None:
    cores = [(node.socket, core) for node in one.nodes for core in node.cores]
    assert sorted(cores) == [(socket, core) for socket in range(one.sockets) for core in range(one.cores_per_socket)]


@pytest.mark.parametrize("one", SHAPES.values(), ids=lambda one: one.name)
def test_the_nodes_memory_adds_up_to_the_machines(one: Shape) -> None:
    line = topology_arguments(one)
    sizes = [int(size) for size in re.findall(r"memory-backend-ram,id=m\d+,size=(\d+)M", " ".join(line))]
    assert line[line.index("-m") + 1] == f"{sum(sizes)}M"
    assert len(sizes) == sum(1 for node in one.nodes if node.memory_mib)


def test_two_sockets_have_a_node_each() -> None:
    line = " ".join(topology_arguments(shape("two-socket")))
    assert "-smp 4,sockets=2,cores=2,threads=1" in line
    assert "node,nodeid=0,memdev=m0" in line
    assert "cpu,node-id=1,socket-id=1,core-id=0" in line
    assert "dist,src=0,dst=1,val=21" in line


def test_sub_numa_clusters_are_closer_than_the_other_socket() -> None:
    snc = shape("snc4")
    assert [snc.distance(0, other) for other in range(4)] == [10, 12, 21, 21]
    assert snc.sockets == 2


def test_a_memoryless_node_has_no_memory_behind_it() -> None:
    line = topology_arguments(shape("memoryless"))
    assert "node,nodeid=1" in line
    assert "node,nodeid=1,memdev=m1" not in line


def test_the_guests_cpu_numbers_go_socket_by_socket() -> None:
    assert shape("two-socket").cpus_of(1) == (2, 3)
    assert shape("snc4").cpus_of(2) == (2,)


def test_an_unknown_shape_is_refused_by_name() -> None:
    with pytest.raises(LabError, match=r"two-socket.*found 'round'"):
        shape("round")


def test_the_machine_listens_on_the_loopback_address_only_and_reaches_nobody() -> None:
    line = " ".join(arguments(vm(shape("two-socket"))))
    assert re.findall(r"hostfwd=\S+", line) == ["hostfwd=tcp:127.0.0.1:2222-:22"]
    assert "restrict=on" in line
    assert "-nodefaults" in line


def test_the_machine_carries_its_identity_in_its_arguments() -> None:
    line = arguments(vm(shape("one-socket")))
    assert line[line.index("-uuid") + 1] == "8c1b5b8e-0000-4000-8000-000000000001"


def test_emulation_and_kvm_differ_in_accelerator_and_cpu_only() -> None:
    emulated, fast = arguments(vm(shape("snc4"))), arguments(vm(shape("snc4"), "kvm"))
    changed = [(a, b) for a, b in zip(emulated, fast, strict=True) if a != b]
    assert changed == [("tcg,thread=multi", "kvm"), ("max", "host")]
