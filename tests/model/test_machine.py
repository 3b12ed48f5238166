"""Nodes, sockets, devices and driver versions from their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nearsocket.model.host import Host, PciLink
from nearsocket.model.read import host
from tests import snapshots
from tests.snapshots import base, machine
from tests.snapshots.base import ADDRESSES, ON_1, TWO_GPUS, TWO_NODES, absent
from tests.snapshots.machine import GIB_KB, GpuSpec, NodeSpec

GIB = 1 << 30


def files(**changes: str) -> dict[str, str]:
    """The two nodes' files, some replaced (`node0__cpulist`)."""
    return {**machine.node_files(TWO_NODES), **{name.replace("__", "/"): text for name, text in changes.items()}}


def read(**sources: Any) -> Host:
    return host(base.host(sources={name.replace("__", "."): value for name, value in sources.items()}))


def test_a_nodes_memory_is_in_bytes() -> None:
    memory = read().nodes[0].memory
    assert memory is not None
    assert (memory.total_bytes, memory.free_bytes, memory.file_bytes) == (256 * GIB, 128 * GIB, 100 * GIB)
    assert (memory.shmem_bytes, memory.anon_bytes, memory.reclaimable_bytes) == (GIB, 24 * GIB, 2 * GIB)
    assert GIB_KB * 1024 == GIB


def test_nodes_that_do_not_add_up_to_the_machines_memory_are_noted_and_one_node_takes_the_machines() -> None:
    whole = base.source("MemTotal: 67108864 kB\nMemFree: 33554432 kB\nCached: 1048576 kB\nBuffers: 0 kB\n")
    two = read(meminfo=whole)
    assert "nodes: the nodes' memory adds up to 524288 MiB, /proc/meminfo says 65536 MiB" in two.notes
    assert [node.memory.total_bytes for node in two.nodes if node.memory] == [256 * GIB, 256 * GIB]
    one = read(meminfo=whole, nodes=machine.node_files((TWO_NODES[0],)))
    assert one.nodes[0].memory is not None and one.nodes[0].memory.total_bytes == 64 * GIB


def test_cpus_that_are_offline_are_in_no_node_and_are_noted() -> None:
    cpus = {**machine.cpu_files({0: "0-7,16-23", 1: ON_1}), "online": "0-7,16-22,24-31"}
    made = read(cpus=cpus)
    assert 23 not in made.nodes[0].cpus and 8 not in made.nodes[1].cpus and made.nodes[1].cpus == set(range(24, 32))
    assert 8 not in made.sockets[1].cpus
    assert "cpus: offline: 8-15,23" in made.notes


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("node0/cpulist", "0-x", "nodes: node 0: its CPU list could not be read"),
        ("node1/meminfo", "cut", "nodes: node 1: its meminfo could not be read"),
        ("node1/distance", "21", "nodes: node 1: 1 distances for 2 nodes, left out"),
    ],
)
def test_what_a_node_does_not_tell_is_noted(name: str, text: str, note: str) -> None:
    assert note in read(nodes={**files(), name: text}).notes


def test_memoryless_is_the_kernels_word_and_else_a_size_of_zero() -> None:
    nodes = (TWO_NODES[0], NodeSpec(1, ON_1, "21 10", 0, 0, 0))
    without = {name: text for name, text in machine.node_files(nodes).items() if name != "has_memory"}
    assert [node.memoryless for node in read(nodes=without).nodes] == [False, True]
    assert [node.memoryless for node in read(nodes={**files(), "has_memory": "1"}).nodes] == [True, False]


def test_a_node_without_cpus_as_near_to_two_sockets_has_none() -> None:
    nodes = (NodeSpec(0, "0-7,16-23", "10 21 24"), NodeSpec(1, ON_1, "21 10 24"), NodeSpec(2, "", "24 24 10"))
    made = read(nodes=machine.node_files(nodes))
    assert made.nodes[2].socket is None and "nodes: node 2: its socket is not known" in made.notes


def test_a_node_with_cpus_of_no_package_is_not_given_the_nearest() -> None:
    cpus = {
        path: text for path, text in machine.cpu_files({0: "0-7,16-23", 1: ON_1}).items() if text != "1" or "package" not in path
    }
    made = read(cpus=cpus)
    assert made.nodes[1].socket is None and made.gpus[0].node == 1 and made.gpus[0].socket is None


def test_one_node_whose_cpus_have_no_package_is_socket_0() -> None:
    made = read(nodes=machine.node_files((NodeSpec(0, "0-31", "10"),)), cpus={"online": "0-31"})
    assert [(node.id, node.socket) for node in made.nodes] == [(0, 0)]
    assert "cpus: no CPU has a package number; the one node is taken as socket 0" in made.notes


def test_a_kernel_without_numa_and_without_memory_or_cpus_is_not_made_up() -> None:
    made = read(nodes=absent("no such folder"), meminfo="", cpus={})
    assert made.nodes == () and "nodes: not read (no such folder): nodes and sockets are not known" in made.notes


def test_a_kernel_without_numa_on_two_packages_says_so() -> None:
    made = read(nodes=absent("no such folder"))
    assert [socket.id for socket in made.sockets] == [0, 1]
    assert any("several packages" in note for note in made.notes)


def gpu(spec: GpuSpec, nvml: Mapping[str, Any] | None = None, **sources: Any) -> Any:
    """The one GPU of this machine; `nvml` changes NVML's entry."""
    snapshot = base.host(gpus=(spec,), sources=sources)
    if nvml is not None:
        snapshot.data("nvml")["gpus"][0].update(nvml)
    (found,) = host(snapshot).gpus
    return found


ONE = TWO_GPUS[0]


def test_every_sources_word_on_the_node_is_kept() -> None:
    assert [(c.source, c.node, c.text) for c in gpu(ONE).claims] == [
        ("sysfs", 1, "1"),
        ("nvml", 1, ON_1),
        ("nvidia-smi topo", 1, "1"),
    ]


def test_nvmls_memory_affinity_is_a_word_of_its_own_where_it_differs() -> None:
    found = gpu(ONE, {"numa_node": 0})
    assert [(c.source, c.node) for c in found.claims] == [
        ("sysfs", 1),
        ("nvml", 1),
        ("nvml memory affinity", 0),
        ("nvidia-smi topo", 1),
    ]
    assert found.node is None and found.nodes_claimed == {0, 1}
    assert [(c.source, c.node) for c in gpu(ONE, {"cpus": None, "numa_node": 1}).claims][1] == ("nvml", 1)
    assert [(c.source, c.node, c.text) for c in gpu(ONE, {"cpus": None, "numa_node": None}).claims][1] == ("nvml", None, "N/A")


def test_sysfs_cpu_list_speaks_where_there_is_no_node_file() -> None:
    spec = GpuSpec(ONE.pci, None, ON_1, None, None)
    found = gpu(spec)
    assert found.claims[0].text == ON_1 and found.node == 1


def test_the_table_names_the_cpus_where_its_node_is_not_available() -> None:
    table = f"\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t{ON_1}\tN/A\t\tN/A\n"
    found = gpu(GpuSpec(ONE.pci, -1, "0-31", None, None), **{"nvidia.topo": table})
    assert [(c.source, c.node, c.text) for c in found.claims] == [
        ("sysfs", None, "-1"),
        ("nvml", None, "N/A"),
        ("nvidia-smi topo", 1, ON_1),
    ]


def test_a_table_that_is_not_certain_is_not_used_and_noted() -> None:
    made = read(nvidia__topo="\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNODE0-3\n")
    assert [claim.source for claim in made.gpus[0].claims] == ["sysfs", "nvml"]
    assert any(note.startswith("nvidia.topo: not used: line 2 is not certain") for note in made.notes)


def test_the_table_numbers_gpus_as_nvml_does_and_without_nvml_by_address() -> None:
    gpus = (GpuSpec("0000:21:00.0", -1, "", 0, "0-7,16-23"), GpuSpec("0000:c1:00.0", -1, "", 1, ON_1))
    swapped = base.host(gpus=gpus)
    for entry in swapped.data("nvml")["gpus"]:
        entry["index"] = 1 - entry["index"]
        entry["cpus"] = entry["numa_node"] = None
    assert [found.node for found in host(swapped).gpus] == [1, 0]
    blind = base.host(gpus=gpus, sources={"nvml": absent("no library")})
    assert [(found.node, found.index, found.name) for found in host(blind).gpus] == [
        (0, None, machine.NAME),
        (1, None, machine.NAME),
    ]
    third = base.host(
        gpus=(*gpus, GpuSpec("0000:e1:00.0", -1, "")), sources={"nvml": absent("x"), "nvidia.topo": machine.topo(gpus)}
    )
    assert [found.node for found in host(third).gpus] == [None, None, None]


def test_a_gpu_is_there_if_one_source_tells_of_it() -> None:
    only_nvml = read(pci=absent("x"), driver__files=absent("x")).gpus
    assert [found.pci for found in only_nvml] == list(ADDRESSES)
    assert only_nvml[0].link == PciLink(32.0, 16, 32.0, 16) and only_nvml[0].driver is None and only_nvml[0].root == ""
    only_files = read(pci=absent("x"), nvml=absent("x")).gpus
    assert [(found.pci, found.name, found.uuid) for found in only_files] == [
        (at, machine.NAME, machine.uuid(n + 1)) for n, at in enumerate(ADDRESSES)
    ]
    only_sysfs = read(nvml=absent("x"), driver__files=absent("x")).gpus
    assert [(found.name, found.uuid) for found in only_sysfs] == [("PCI 10de:2bb5", None)] * 2


def test_mig_instances_and_bad_addresses_are_no_gpus() -> None:
    snapshot = base.host()
    entries = snapshot.data("nvml")["gpus"]
    entries += [{**entries[0], "uuid": "MIG-1", "pci": "0000:99:00.0"}, {"pci": "what\x1b"}, 5]
    made = host(snapshot)
    assert [found.pci for found in made.gpus] == list(ADDRESSES)
    assert "nvml: a GPU without a readable PCI address ('what\\x1b'), left out" in made.notes


def test_a_virtual_function_is_no_gpu_and_two_gpus_of_one_bus_are() -> None:
    specs = (ONE, GpuSpec("0000:c1:01.0", 1, ON_1, 1, ON_1))
    assert len(host(base.host(gpus=specs)).gpus) == 2
    told = base.host(gpus=specs[:1])
    told.data("pci")["0000:e9:00.0"] = {**told.data("pci")[ONE.pci], "physfn": True}
    told.data("pci")["0000:c1:00.4"] = told.data("pci")[ONE.pci]
    assert [found.pci for found in host(told).gpus] == [ONE.pci]


def test_bridges_have_their_links_and_a_missing_one_an_empty_link() -> None:
    found = gpu(GpuSpec(ONE.pci, 1, ON_1, 1, ON_1, width="8", extra={"path": ["0000:c0:01.0", "0000:c0:09.0"]}))
    assert found.bridges == ("0000:c0:01.0", "0000:c0:09.0") and found.root == "pci0000:c0"
    assert found.link == PciLink(32.0, 8, 32.0, 16)
    assert found.bridge_links["0000:c0:01.0"].width == 8 and found.bridge_links["0000:c0:09.0"] == PciLink()


def test_links_between_gpus_have_one_form_of_address() -> None:
    other = "00000000:" + ADDRESSES[1][5:].upper()
    found = host(nvml_with({"links": {other: "NV18", "x": "SYS", ADDRESSES[0]: None}, "p2p": {other: "ok"}})).gpus[0]
    assert found.links == {ADDRESSES[1]: "NV18"} and found.p2p == {ADDRESSES[1]: "ok"}


def nvml_with(changes: Mapping[str, Any]) -> Any:
    snapshot = base.host()
    snapshot.data("nvml")["gpus"][0].update(changes)
    return snapshot


def test_a_network_card_has_its_interfaces_and_node() -> None:
    (nic,) = read().nics
    assert (nic.pci, nic.name, nic.interfaces, nic.node, nic.socket) == ("0000:17:00.0", "mlx5_core ens1np0", ("ens1np0",), 0, 0)
    snapshot = base.host()
    snapshot.data("pci")["0000:17:00.0"] = {"class": "0x020000"}
    assert host(snapshot).nics[0].name == "PCI ?:?"


LIBRARIES: Sequence[tuple[dict[str, str], str | None]] = [
    ({"/usr/lib/x86_64-linux-gnu/libcuda.so.1": "libcuda.so.580.95.05"}, "580.95.05"),
    ({"a/libnvidia-ml.so.1": "/usr/lib/libnvidia-ml.so.570.1", "b/libcuda.so.1": "libcuda.so.580.95.05"}, "580.95.05"),
    ({"/usr/lib/i386/libcuda.so.1": "libcuda.so.535.1", "/usr/lib64/libcuda.so.1": "libcuda.so.580.95.05"}, "580.95.05"),
    ({"libnvidia-ml.so.1": "libnvidia-ml.so.570.133.20"}, "570.133.20"),
    ({"libcuda.so.1": "libcuda.so.1"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("names", "version"), LIBRARIES)
def test_the_librarys_version_is_in_its_files_name(names: dict[str, str], version: str | None) -> None:
    assert read(driver__libraries=names).driver.library == version


def test_several_library_versions_are_noted() -> None:
    made = read(driver__libraries=LIBRARIES[2][0])
    assert made.notes == ("driver.libraries: libcuda.so.1 is installed in several versions: 535.1, 580.95.05",)


def test_the_modules_version_is_sysfs_and_else_the_version_files() -> None:
    assert read(driver__module={"nvidia/version": "570.1"}).driver.module_loaded == "570.1"
    assert read(driver__module=absent("x")).driver.module_loaded == machine.DRIVER
    odd = read(driver__module={"nvidia/version": "\x1b!"})
    assert odd.driver.module_loaded == machine.DRIVER
    assert odd.notes == ("driver.module: expected a driver version such as 580.95.05, found '\\x1b!'",)


def test_modinfo_keeps_releases_without_a_module() -> None:
    assert read(driver__modinfo={"6.1": "580.1", "6.2": None, "6.3": 5}).driver.modinfo == {
        "6.1": "580.1",
        "6.2": None,
        "6.3": None,
    }


def test_single_facts() -> None:
    arc = "13 1 0x01\nname type data\nc_min 4 100\nsize 4 200"
    made = read(zfs__arcstats=arc, os__release="NAME=x\nID='rocky'\n")
    assert (made.arc_bytes, made.arc_min_bytes, made.os_id, made.uid, made.kernel) == (200, 100, "rocky", 0, machine.KERNEL)
    assert made.sysctl["vm.zone_reclaim_mode"] == "0" and made.cmdline["iommu"] == "pt"
    assert made.holds == {"nvidia-driver-cuda", "nvidia-open-kernel-dkms"} and "nvidia_uvm" in made.modules
    assert read(zfs__arcstats=absent("x")).arc_bytes is None
    assert {m.point for m in made.mounts} == {"/", "/proc", "/sys", "/dev/shm"}


def test_a_fixture_can_be_loaded_by_name() -> None:
    assert snapshots.load("no-gpu").host == "gpu1"
