"""Everything that stops an upgrade before it begins, each with what would not stop it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.driver import family, preflight
from nearsocket.model.driver.preflight import Grade, Look, Size
from nearsocket.model.host import Host
from tests.build import container, host, process, source
from tests.driver import packages as lists

DKMS, STANDIN = family.of(lists.of(lists.UBUNTU_DKMS)), family.of(lists.of(lists.STANDIN))
BUILT, NVIDIA = family.of(lists.of(lists.UBUNTU_SERVER_OPEN)), family.of(lists.of(lists.NVIDIA))
RUNNING, NEXT = "6.8.0-87-generic", "6.8.0-88-generic"
GIB = 1 << 30


def told(name: str, data: Any) -> Host:
    return host(sources={**host().sources, name: source(data=data)})


def stops(*looks: Look) -> list[str]:
    return [str(look) for look in looks if look.grade is Grade.STOP]


def test_packages_that_are_whole_and_one_driver_are_not_stopped() -> None:
    for text in (lists.DEBIAN, lists.UBUNTU_DKMS, lists.UBUNTU_SERVER_OPEN, lists.NVIDIA, lists.STANDIN):
        assert preflight.whole(family.of(lists.of(text)), "", "580.105.08") == ()


@pytest.mark.parametrize(
    ("text", "audit", "said"),
    [
        (lists.STANDIN.replace("hi ", "hF ", 1), "", "packages: half installed: nvidia-kernel-standin"),
        (lists.STANDIN, "The following packages are only half configured\n", "packages: The following packages are only half"),
        (lists.OTHERS, "", "family: the driver did not come from packages"),
        (lists.STANDIN + lists.listed("1.2.3-1", "x") + lists.listed("570.1.2-1", "libcuda1"), "", "family: packages of several"),
        (lists.STANDIN + lists.listed("570-1", "nvidia-driver-pinning-570"), "", "pin: the repository is pinned to 570"),
        (lists.STANDIN + lists.listed("1", "nvidia-driver-pinning-580.9"), "", "pin: the repository is pinned to 580.9"),
    ],
)
def test_packages_that_are_broken_split_foreign_or_pinned_stop_it(text: str, audit: str, said: str) -> None:
    assert stops(*preflight.whole(family.of(lists.of(text)), audit, "580.95.05"))[0].startswith(said)


def test_a_pin_to_the_targets_branch_or_version_is_no_obstacle() -> None:
    for pin in ("580", "580.95", "580.95.05"):
        pinned = family.of(lists.of(lists.STANDIN + lists.listed("1", f"nvidia-driver-pinning-{pin}")))
        assert preflight.whole(pinned, "", "580.95.05") == ()


def test_the_next_kernel_is_the_boot_loaders_else_the_newest() -> None:
    images = {"installed": ["6.8.0-9-generic", "6.8.0-88-generic", "6.8.0-87-generic"], "default": "6.8.0-87-generic"}
    assert preflight.next_kernel(told("kernel.images", images)) == "6.8.0-87-generic"
    assert preflight.next_kernel(told("kernel.images", {**images, "default": None})) == "6.8.0-88-generic"
    assert preflight.next_kernel(host()) == host().kernel


@pytest.mark.parametrize(
    ("found", "headers", "compiler", "prebuilt", "said"),
    [
        (DKMS, {RUNNING: True, NEXT: True}, True, (), None),
        (DKMS, {RUNNING: True}, True, (), f"kernels: no headers for kernel {NEXT}"),
        (DKMS, {NEXT: True}, True, (), f"kernels: no headers for kernel {RUNNING}"),
        (DKMS, {RUNNING: True, NEXT: True}, False, (), "kernels: DKMS builds the module, and dkms, make or gcc is not there"),
        (BUILT, {}, False, tuple(f"linux-modules-nvidia-580-server-open-{release}" for release in (RUNNING, NEXT)), None),
        (BUILT, {}, False, (), f"kernels: no built module for kernel {RUNNING}, {NEXT}"),
        (BUILT, {}, False, (f"linux-modules-nvidia-580-server-open-{RUNNING}",), f"kernels: no built module for kernel {NEXT}"),
        (STANDIN, {}, False, (), None),
    ],
)
def test_both_kernels_need_a_module(
    found: family.Family, headers: dict[str, bool], compiler: bool, prebuilt: tuple[str, ...], said: str | None
) -> None:
    stopped = stops(*preflight.kernels(found, (RUNNING, NEXT), headers, compiler, prebuilt))
    assert [line.partition(" (")[0] for line in stopped] == ([said] if said else [])


@pytest.mark.parametrize(
    ("enabled", "found", "enrolled", "grade"),
    [
        (False, DKMS, None, Grade.OK),
        (None, DKMS, None, Grade.WARN),
        (True, BUILT, None, Grade.OK),
        (True, DKMS, True, Grade.OK),
        (True, DKMS, False, Grade.STOP),
        (True, DKMS, None, Grade.STOP),
    ],
)
def test_with_secure_boot_a_module_that_nobody_signed_is_not_begun(
    enabled: bool | None, found: family.Family, enrolled: bool | None, grade: Grade
) -> None:
    assert preflight.secure_boot(enabled, found, enrolled).grade is grade


ROOM = {"/var": 10 * GIB, "/usr": 10 * GIB, "/boot": GIB}


def test_needs_on_one_file_system_are_added_up() -> None:
    sizes = [Size("libnvidia-compute-580", 400 << 20, 1300 << 20)]
    free = {"/var": 1600 << 20, "/usr": 1600 << 20}
    assert stops(*preflight.disk(free, sizes, 0, {"/var": 1, "/usr": 2})) == []
    said = stops(*preflight.disk(free, sizes, 0, {"/var": 1, "/usr": 1}))
    assert said[0].startswith("disk: /var, /usr: 1600 MiB free, 2229 MiB needed")


@pytest.mark.parametrize("loaded", ["580.95.05", "580.90.01"])
def test_packages_that_are_not_the_module_that_serves_stop_it_for_there_would_be_no_way_back(loaded: str) -> None:
    made = host()
    made = dataclasses.replace(made, driver=dataclasses.replace(made.driver, module_loaded=loaded))
    assert bool(stops(*preflight.loaded(made, STANDIN))) is (STANDIN.version != loaded)


@pytest.mark.parametrize("path", [None, *ROOM])
def test_a_file_system_without_room_stops_it_and_is_named(path: str | None) -> None:
    sizes = [Size("libnvidia-compute-580", 200 << 20, 0), Size("nvidia-utils-580", 1 << 20, 4 << 20)]
    looks = preflight.disk({**ROOM, **({path: 1 << 20} if path else {})}, sizes, 80 << 20, {})
    assert [line.split(":")[1].strip() for line in stops(*looks)] == ([path] if path else [])


def test_a_gpu_in_other_hands_stops_it_unless_leave_is_given() -> None:
    assert preflight.held_gpus(host(processes=(), containers=()), None, False).grade is Grade.OK
    busy = host(processes=(process(),), containers=(container(),))
    assert "process 4242" in preflight.held_gpus(busy, None, False).text
    assert preflight.held_gpus(busy, None, False).grade is Grade.STOP
    assert preflight.held_gpus(busy, None, True).grade is Grade.WARN


def test_holders_that_could_not_be_seen_stop_it() -> None:
    blind = host(processes=(), sources={**host().sources, "processes": source(status="denied", reason="not root")})
    assert preflight.held_gpus(blind, None, True).grade is Grade.STOP


SWITCHES = {"unit": "active", "version": "590.48.01", "nvswitches": 4}
WRONG = family.of(lists.of(lists.STANDIN + lists.listed("570.1.2-1", "nvidia-fabricmanager-570")))


@pytest.mark.parametrize(
    ("data", "found", "names", "grade"),
    [
        ({"nvswitches": 0}, STANDIN, (), Grade.OK),
        (SWITCHES, NVIDIA, ("nvidia-fabricmanager", "nvidia-open"), Grade.OK),
        (SWITCHES, NVIDIA, ("nvidia-open",), Grade.STOP),
        (SWITCHES, STANDIN, (), Grade.STOP),
        (SWITCHES, WRONG, (), Grade.STOP),
        ({"nvswitches": 0}, WRONG, (), Grade.WARN),
    ],
)
def test_where_nvswitches_are_fabric_manager_comes_along_at_the_drivers_version(
    data: dict[str, Any], found: family.Family, names: tuple[str, ...], grade: Grade
) -> None:
    assert preflight.fabric(told("fabricmanager", data), found, names).grade is grade


@pytest.mark.parametrize(
    ("version", "spec", "grade"),
    [
        ("1.18.0", "libcuda.so.580.95.05", Grade.OK),
        (None, "libcuda.so.1", Grade.OK),
        (None, "libcuda.so.580.95.05", Grade.STOP),
    ],
)
def test_a_cdi_specification_that_names_the_old_files_needs_the_toolkit(version: str | None, spec: str, grade: Grade) -> None:
    made = host(
        sources={
            **host().sources,
            "cdi": source(data={"/etc/cdi/nvidia.yaml": spec}),
            "container.toolkit": source(data={"version": version, "config": None}),
        }
    )
    assert preflight.toolkit(made, STANDIN).grade is grade
