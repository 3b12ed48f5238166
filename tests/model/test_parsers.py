"""Parsers of system sources: each case is a file of real shape under tests/data/system with the expected value beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model import cpulist
from nearsocket.model.parsers import (
    arcstats,
    cgroup,
    cmdline,
    containers,
    meminfo,
    mountinfo,
    nvidia_proc,
    packages,
    pci,
    policy,
    procstatus,
    sysfs,
    take,
    units,
)

FOLDER = Path(__file__).parent.parent / "data" / "system"


def listed(numbers: frozenset[int] | None) -> str | None:
    return None if numbers is None else cpulist.render(numbers)


def status(text: str) -> list[Any]:
    found = procstatus.parse(text)
    row = [found.name, found.ppid, found.uid, found.cap_eff, listed(found.cpus), listed(found.mems)]
    return [*row, list(found.nspid), found.sys_nice]


def group(text: str) -> list[Any]:
    found = cgroup.parse(text)
    return [found.path, found.container, found.unit]


def information(text: str) -> list[Any]:
    found = nvidia_proc.information(text)
    return [found.model, found.uuid, found.minor]


PARSERS: Mapping[str, Callable[[str], Any]] = {
    "mountinfo": lambda text: [
        [m.point, m.kind, m.source, list(m.options), m.policy, m.root, m.device] for m in mountinfo.mounts(text)
    ],
    "status": status,
    "cgroup": group,
    "meminfo": lambda text: dict(meminfo.values(text)),
    "packages": lambda text: [[p.name, p.version, p.status] for p in packages.packages(text)],
    "holds": lambda text: sorted(packages.holds(text)),
    "nvidia_version": lambda text: [nvidia_proc.module_version(text), nvidia_proc.module_kind(text)],
    "nvidia_information": information,
    "arcstats": lambda text: dict(arcstats.arcstats(text)),
    "cmdline": lambda text: dict(cmdline.cmdline(text)),
    "policy": policy.policy,
    "modules": lambda text: sorted(packages.modules(text)),
}
CASES = sorted(FOLDER.glob("*/*.txt"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.stem}")
def test_a_file_of_real_shape_is_read(case: Path) -> None:
    expected = json.loads(case.with_suffix(".expected.json").read_text(encoding="utf-8"))
    assert PARSERS[case.parent.name](case.read_text(encoding="utf-8")) == expected


def test_every_parser_has_cases() -> None:
    assert {case.parent.name for case in CASES} == set(PARSERS)


@given(st.sampled_from(sorted(PARSERS)), st.text() | st.text(alphabet="0123456789:-,./ \n\tabcdefN=()\\"))
def test_no_text_makes_a_parser_raise(name: str, text: str) -> None:
    json.dumps(PARSERS[name](text))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_mount_point_survives_the_kernels_escapes(point: str) -> None:
    escaped = "".join(f"\\{ord(ch):03o}" if ch in " \t\n\\" else ch for ch in point)
    assert mountinfo.unescape(escaped) == point


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:3d:00.0", "0000:3d:00.0"),
        ("00000000:3D:00.0", "0000:3d:00.0"),
        ("3d:00.1", "0000:3d:00.1"),
        ("0018:01:00.0", "0018:01:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        (" 0000:3d:00.0\n", "0000:3d:00.0"),
        ("0000:3d:00.8", None),
        ("GPU-1", None),
        ("", None),
    ],
)
def test_a_pci_address_has_one_form(text: str, expected: str | None) -> None:
    assert pci.address(text) == expected


@pytest.mark.parametrize(
    ("speed", "width", "expected"),
    [
        ("32.0 GT/s PCIe", "16", (32.0, 16)),
        ("2.5 GT/s", "x8", (2.5, 8)),
        ("16 GT/s PCIe", "4", (16.0, 4)),
        ("Unknown", "63", (None, None)),
        ("", "255", (None, None)),
        ("Unknown speed", "0", (None, None)),
    ],
)
def test_a_link_is_read_or_not_known(speed: str, width: str, expected: tuple[float | None, int | None]) -> None:
    assert (pci.speed(speed), pci.width(width)) == expected


@pytest.mark.parametrize(
    ("vendor", "kind", "gpu", "nic"),
    [
        ("0x10de", "0x030000", True, False),
        ("0x10de", "0x030200", True, False),
        ("0x10de", "0x120000", True, False),
        ("0x10de", "0x040300", False, False),  # the audio function
        ("0x10de", "0x068000", False, False),  # an NVSwitch
        ("0x1a03", "0x030000", False, False),  # a board's own screen
        ("0x1002", "0x030200", True, False),
        ("0x15b3", "0x020000", False, True),
        ("0x15b3", "0x020700", False, True),
    ],
)
def test_the_class_tells_gpus_and_network_cards(vendor: str, kind: str, gpu: bool, nic: bool) -> None:
    entry = pci.entries({"0000:3d:00.0": {"vendor": vendor, "class": kind}})["0000:3d:00.0"]
    assert (entry.is_gpu, entry.is_nic) == (gpu, nic)


def test_nodes_are_those_online_and_hugepages_of_all_sizes_add_up() -> None:
    files = {
        "online": "0,8",
        "has_memory": "0",
        "node0/cpulist": "0-3",
        "node0/distance": "10 40",
        "node0/meminfo": "Node 0 MemTotal: 8 kB\nNode 0 MemFree: 4 kB\nNode 0 SReclaimable: 1 kB",
        "node0/hugepages/hugepages-2048kB/nr_hugepages": "3",
        "node0/hugepages/hugepages-1048576kB/nr_hugepages": "1",
        "node0/hugepages/hugepages-2048kB/free_hugepages": "2",
        "node8/cpulist": "x",
        "node8/distance": "40 ten",
        "node5/cpulist": "4",
        "node99999/cpulist": "5",
    }
    zero, eight = sysfs.nodes(files)
    assert (zero.id, zero.cpus, zero.distances, zero.has_memory) == (0, {0, 1, 2, 3}, (10, 40), True)
    assert zero.memory is not None and zero.memory.hugepages_bytes == 3 * (2 << 20) + (1 << 30)
    assert zero.memory.hugepages_free_bytes == 2 * (2 << 20) and zero.memory.reclaimable_bytes == 1024
    assert (eight.id, eight.cpus, eight.distances, eight.memory, eight.has_memory) == (8, None, (), None, False)
    assert [node.id for node in sysfs.nodes({**files, "online": "?"})] == [0, 5, 8]


@pytest.mark.parametrize(
    ("text", "words"),
    [("\u0663", "expected a list"), ("0-\u0663", "expected a list"), ("0-999999999", "at most 65536"), ("3-1", "ascending")],
)
def test_a_list_of_numbers_is_ascii_and_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        cpulist.parse(text)


def test_the_machines_memory_counts_buffers_as_page_cache() -> None:
    whole = meminfo.whole_memory(
        "MemTotal: 9 kB\nMemFree: 3 kB\nCached: 2 kB\nBuffers: 1 kB\nHugePages_Total: 2\nHugepagesize: 2048 kB"
    )
    assert whole is not None and whole.file_bytes == 3 * 1024 and whole.hugepages_bytes == 2 * (2 << 20)
    assert meminfo.whole_memory("MemTotal: 9 kB") is None
    assert meminfo.node_memory("", {}) is None


def test_cpus_without_a_package_are_left_out() -> None:
    found = sysfs.cpus({"online": "0-1", "cpu0/topology/physical_package_id": "1", "cpu2/topology/physical_package_id": "-1"})
    assert (found.online, found.listed, dict(found.package)) == ({0, 1}, {0, 2}, {0: 1})


def test_a_container_is_read_whatever_is_missing() -> None:
    (box,) = containers.containers(
        [{"id": "abc", "name": "/x", "cap_add": ["CAP_SYS_NICE", "sys_nice", 5], "env": {"A": 1, "B": "2"}}, {}, 7]
    )
    assert (box.id, box.name, box.cap_add, dict(box.environ), box.pid) == ("abc", "x", ("SYS_NICE", "SYS_NICE"), {"B": "2"}, 0)


def test_a_unit_needs_a_name() -> None:
    (unit,) = units.units([{"id": "a.service", "main_pid": "12", "numa_policy": None}, {"active": "active"}])
    assert (unit.id, unit.main_pid, unit.numa_policy) == ("a.service", 12, "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        ("5", 5),
        (" 7 ", 7),
        (True, None),
        (1.0, None),
        (-1, None),
        (1 << 80, None),
        ("٣", None),
        ("9" * 5000, None),
        (None, None),
    ],
)
def test_a_number_is_a_whole_one_in_range(value: Any, expected: int | None) -> None:
    assert take.number(value) == expected
