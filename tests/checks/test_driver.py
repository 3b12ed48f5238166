"""driver.*: versions, holds, rivals, persistence, the next kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nearsocket.model.host import Driver, Host, Package
from nearsocket.model.verdicts.kernels import release_key
from tests import build
from tests.checks.judging import findings, host_with, one, status

MATCH, HOLDS, RIVAL, PERSISTENCE, NEXT = (
    f"driver.{word}" for word in ("versions-match", "package-holds", "conflicting-module", "persistence", "dkms-next-kernel")
)
KERNEL = "6.12.0-1-amd64"


def packages(version: str = "580.95.05-1", mark: str = "ii") -> tuple[Package, ...]:
    return (
        Package("nvidia-kernel-open-dkms", version, mark),
        Package("libnvidia-compute-580:amd64", f"1:{version}", mark),
        Package("nvidia-container-toolkit", "1.18.0-1", "ii"),
        Package("libnvidia-compute-535", "535.1.2-1", "rc"),
    )


def driver(**changes: Any) -> Host:
    return build.host(driver=dataclasses.replace(Driver("580.95.05", "open", "580.95.05", "580.95.05", 13000, {}), **changes))


def test_one_version_everywhere_passes() -> None:
    finding = one(MATCH, dataclasses.replace(driver(modinfo={KERNEL: "580.95.05"}), packages=packages()))
    assert finding.status.value == "pass"
    assert "module, library, NVML, module on disk, 2 packages" in finding.summary


@pytest.mark.parametrize("changes", [{"library": "580.105.08"}, {"nvml": "580.105.08"}])
def test_a_library_of_another_version_fails(changes: dict[str, str]) -> None:
    finding = one(MATCH, driver(**changes))
    assert finding.status.value == "fail"
    assert "580.105.08" in finding.summary


def test_nvidia_smi_saying_so_itself_fails() -> None:
    said = "nvidia-smi: exit code 18 (module and library versions differ): Failed to initialize NVML"
    for reason in (said, "Driver/library version mismatch"):
        host = host_with({"nvidia.smi": build.source(status="error", reason=reason)})
        assert status(MATCH, host) == "fail"
    other = host_with({"nvidia.smi": build.source(status="error", reason="exit code 180")})
    assert status(MATCH, other) == "pass"
    late = host_with({"nvidia.smi": build.source(status="timeout", reason="no answer in 18 s")})
    assert status(MATCH, late) == "pass"


def test_what_the_next_boot_brings_warns() -> None:
    assert status(MATCH, driver(modinfo={KERNEL: "580.105.08"})) == "warn"
    assert status(MATCH, dataclasses.replace(driver(), packages=packages("580.105.08-1"))) == "warn"


def test_the_module_alone_is_nothing_to_compare_with() -> None:
    assert status(MATCH, driver(library=None, nvml=None)) == "unknown"


def test_no_module_in_memory_fails_where_the_modules_were_read() -> None:
    gone = dataclasses.replace(driver(module_loaded=None, nvml=None), modules=frozenset({"ext4"}))
    assert (
        status(MATCH, dataclasses.replace(gone, sources={**gone.sources, "kernel.modules": build.source("ext4 1 0 - Live")}))
        == "fail"
    )
    assert status(MATCH, dataclasses.replace(gone, modules=frozenset())) == "unknown"
    assert status(MATCH, driver(module_loaded=None)) == "unknown"


def held(*names: str, **changes: Any) -> Host:
    read = {"packages": build.source(""), "packages.holds": build.source("\n".join(names))}
    return host_with(read, **{"packages": packages(), "holds": frozenset(names), **changes})


def test_all_held_passes_by_any_tools_way_of_holding() -> None:
    assert status(HOLDS, held("nvidia-kernel-open-dkms", "libnvidia-compute-580")) == "pass"
    assert status(HOLDS, held(packages=packages(mark="hi"))) == "pass"
    rpm = (Package("nvidia-driver", "3:580.95.05-1.el9", "ii"),)
    assert status(HOLDS, held("nvidia-driver-3:580.95.05-1.el9.*", packages=rpm, os_id="rhel")) == "pass"


def test_none_or_some_held_warns_and_names_them() -> None:
    assert one(HOLDS, held()).remedy == "sudo apt-mark hold libnvidia-compute-580:amd64 nvidia-kernel-open-dkms"
    some = one(HOLDS, held("nvidia-kernel-open-dkms"))
    assert some.status.value == "warn"
    assert some.remedy == "sudo apt-mark hold libnvidia-compute-580:amd64"
    assert "versionlock" in (one(HOLDS, held(os_id="rhel")).remedy or "")


def test_held_at_two_versions_fails() -> None:
    mixed = (*packages(mark="hi")[:1], Package("libnvidia-compute-580", "580.105.08-1", "hi"))
    assert status(HOLDS, held(packages=mixed)) == "fail"


def test_holds_that_were_not_read_are_unknown_and_no_package_is_not_applicable() -> None:
    assert status(HOLDS, host_with({"packages.holds": build.source(status="timeout")}, packages=packages())) == "unknown"
    assert (
        status(HOLDS, host_with({"packages": build.source("")}, packages=(Package("docker.io", "26", "ii"),))) == "not-applicable"
    )
    assert status(HOLDS, host_with({"packages": build.source(status="denied")})) == "unknown"


def test_rivals_of_the_nvidia_module() -> None:
    assert status(RIVAL, build.host()) == "pass"
    assert status(RIVAL, build.host(modules=frozenset({"nvidia", "nouveau"}))) == "warn"
    assert status(RIVAL, build.host(gpus=(build.gpu(0, driver="nova_core"), build.gpu(1)))) == "fail"
    assert status(RIVAL, build.host(gpus=(build.gpu(0, driver="vfio-pci"), build.gpu(1)))) == "warn"
    assert status(RIVAL, host_with({"kernel.modules": build.source(status="denied")}, modules=frozenset())) == "unknown"


def test_persistence_is_judged_for_each_gpu_of_this_host() -> None:
    gpus = (
        build.gpu(0),
        build.gpu(1, persistence=False),
        build.gpu(2, persistence=None),
        build.gpu(3, driver="vfio-pci", persistence=None),
    )
    assert [f.status.value for f in findings(PERSISTENCE, build.host(gpus=gpus))] == ["pass", "warn", "unknown"]


def images(default: str | None, modules: dict[str, list[str]], **changes: Any) -> Host:
    data = {"installed": list(modules), "nvidia_module": modules, "default": default}
    return host_with({"kernel.images": build.source(data=data)}, **changes)


NEWER = "6.12.10-1-amd64"
MODULE = ["updates/dkms/nvidia.ko.xz"]


def test_the_next_kernels_module() -> None:
    assert status(NEXT, images(KERNEL, {KERNEL: MODULE})) == "pass"
    assert status(NEXT, images(NEWER, {KERNEL: MODULE, NEWER: MODULE})) == "pass"
    missing = one(NEXT, images(NEWER, {KERNEL: MODULE, NEWER: []}))
    assert missing.status.value == "fail"
    assert "dkms autoinstall -k 6.12.10-1-amd64" in (missing.remedy or "")
    debian = one(NEXT, images(NEWER, {KERNEL: ["/lib/modules/x/updates/dkms/nvidia-current.ko"], NEWER: []}))
    assert (debian.remedy or "").endswith("modinfo -k 6.12.10-1-amd64 nvidia-current")
    assert status(NEXT, images(None, {KERNEL: MODULE, NEWER: []})) == "warn"
    assert status(NEXT, images(KERNEL, {KERNEL: MODULE, NEWER: []})) == "pass"


def test_a_module_of_another_version_than_the_libraries_warns() -> None:
    other = Driver("580.95.05", "open", "580.95.05", "580.95.05", 13000, {NEWER: "580.105.08"})
    assert status(NEXT, images(NEWER, {KERNEL: MODULE, NEWER: MODULE}, driver=other)) == "warn"


def test_no_module_anywhere_is_not_applicable_and_no_list_is_unknown() -> None:
    assert status(NEXT, images(KERNEL, {KERNEL: []})) == "not-applicable"
    assert status(NEXT, host_with({"kernel.images": build.source(status="denied")})) == "unknown"
    outside = build.source(status="absent", reason="no folder /lib/modules")
    assert status(NEXT, host_with({"kernel.images": outside})) == "not-applicable"


def test_kernel_releases_sort_by_their_numbers() -> None:
    releases = ["6.9.0-1-amd64", "6.10.0-1-amd64", "6.10.0-12-amd64", "6.10.0-2-amd64"]
    assert sorted(releases, key=release_key) == [releases[0], releases[1], releases[3], releases[2]]


def switched(unit: str, version: str | None = "Fabric Manager version is : 580.95.05", switches: int = 4, **changes: Any) -> Host:
    return host_with({"fabricmanager": build.source(data={"unit": unit, "version": version, "nvswitches": switches})}, **changes)


@pytest.mark.parametrize(
    ("host", "wanted", "words"),
    [
        (switched("active"), "pass", "fabric manager"),
        (switched("active", None), "pass", "fabric manager"),
        (switched("active", "580.95.07"), "fail", "fabric manager is 580.95.07 and the module 580.95.05"),
        (switched("inactive"), "fail", "4 NVSwitches, but fabric manager does not run (inactive)"),
        (switched("failed", None), "fail", "does not run (failed)"),
        (switched("absent", None), "fail", "does not run (absent)"),
        (switched("inactive", "470.1.1", 0), "pass", "everywhere"),
    ],
)
def test_fabric_manager_must_run_at_the_drivers_version_where_nvswitches_are(host: Host, wanted: str, words: str) -> None:
    read = dataclasses.replace(host, sources={**host.sources, "processes": build.source(data=[])})
    finding = one(MATCH, read)
    assert (finding.status.value, words in finding.summary) == (wanted, True)


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ("nvidia-fabricmanager", ["nvidia-fabricmanager=580.95.05-*"]),
        ("nvidia-fabricmanager-580", ["nvidia-fabricmanager-580=580.95.05-*"]),
        ("nvidia-fabricmanager-570", ["nvidia-fabricmanager-580=580.95.05-*", "nvidia-fabricmanager=580.95.05-*"]),
        ("nvidia-fabricmanager-dev", ["nvidia-fabricmanager-580=580.95.05-*", "nvidia-fabricmanager=580.95.05-*"]),
    ],
)
def test_fabric_managers_package_is_named_as_its_repository_does(installed: str, said: list[str]) -> None:
    found = one(MATCH, switched("active", "580.95.07", packages=(Package(installed, "580.95.07-1", "ii"),)))
    commands = (found.remedy or "").partition(";")[0].split(" || ")
    assert commands == [f"sudo apt-get install {word}" for word in said]


def test_a_fabric_manager_in_a_container_is_known_by_its_process_and_unknown_where_it_may_be_hidden() -> None:
    inside = switched("absent", None, processes=(build.process(comm="nv-fabricmanage"),))
    assert status(MATCH, inside) == "pass"
    hidden = switched("absent", None)
    sources = {**hidden.sources, "processes": build.source(data=[], reason="no permission to look into 9 of 99 processes")}
    assert status(MATCH, dataclasses.replace(hidden, sources=sources)) == "unknown"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("/etc/modprobe.d/x.conf", "blacklist nouveau"),
        ("/etc/modprobe.d/x.conf", "install nouveau /bin/false"),
        ("/usr/lib/modprobe.d/x.conf", "alias nouveau off"),
    ],
)
def test_a_blacklist_that_is_there_already_is_told_and_the_cure_is_the_initial_ram_disk(source: str, text: str) -> None:
    sources = {"modprobe": build.source(data={source: f"# words\n{text}\n"})}
    finding = one(RIVAL, host_with(sources, modules=frozenset({"nvidia", "nouveau"})))
    assert finding.status.value == "warn" and "blacklisted already" in (finding.remedy or "")
    assert (f"modprobe {source}", text) in [(piece.source, piece.text) for piece in finding.evidence]
    other = host_with({"modprobe": build.source(data={source: "blacklist nouveau_x"})}, modules=frozenset({"nouveau"}))
    assert "modprobe.d/gpu-blacklist.conf" in (one(RIVAL, other).remedy or "")


def test_the_kernels_command_line_keeps_modules_away_too() -> None:
    line = build.source(text="ro modprobe.blacklist=nouveau,nova_core quiet")
    finding = one(RIVAL, host_with({"kernel.cmdline": line}, modules=frozenset({"nvidia", "nouveau", "nova_core"})))
    assert "blacklisted already" in (finding.remedy or "")
