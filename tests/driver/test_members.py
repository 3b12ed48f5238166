"""Packages that are of the driver and not of its version, or of its version and not of it, and what each does to a transaction."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.driver import family, names, preflight, transaction
from nearsocket.model.driver.family import Family
from nearsocket.model.driver.preflight import Grade
from nearsocket.model.host import Package
from nearsocket.model.verdicts import driverversions
from tests import build
from tests.driver import packages as lists

UBUNTU, NEWER = "580.159.03-0ubuntu0.24.04.1", "580.173.02-0ubuntu0.24.04.1"
NEW = "580.173.02"


def made(*lines: str) -> Family:
    return family.of(lists.of("".join(lines)))


def words(mine: Family, target: str, version: str, *called: str) -> tuple[str, ...]:
    """The transaction's, where these are offered at that version, or all members by their own names."""
    offers = dict.fromkeys(called or [package.name for package in mine.named], (version,))
    return transaction.make(mine, target, offers).words


def test_debians_driver_has_optix_and_mps() -> None:
    assert {"libnvoptix1", "nvidia-cuda-mps"} <= family.of(lists.of(lists.DEBIAN)).names


def test_debians_tesla_branch_is_a_driver_and_has_no_other_branch_to_go_to() -> None:
    mine = family.of(lists.of(lists.DEBIAN_TESLA))
    assert words(mine, "535.247.01", "535.247.01-1~deb12u1")
    assert transaction.make(mine, "550.163.01", {"nvidia-driver": ("550.163.01-1",)}).missing


def test_a_package_of_the_branch_before_that_is_at_the_drivers_version_comes_along_by_its_name() -> None:
    mine = made(lists.listed(UBUNTU, "nvidia-driver-580-open", "libnvidia-compute-580", "nvidia-driver-570-open"))
    assert mine.version == "580.159.03"
    assert "nvidia-driver-570-open" in transaction.candidates(mine, NEW)
    assert f"nvidia-driver-570-open={NEWER}" in words(mine, NEW, NEWER)
    without = words(mine, NEW, NEWER, "nvidia-driver-580-open", "libnvidia-compute-580")
    assert without == (f"libnvidia-compute-580={NEWER}", f"nvidia-driver-580-open={NEWER}")


LEFT = (
    lists.listed(UBUNTU, "nvidia-driver-580-open", "libnvidia-compute-580", "nvidia-fabricmanager-580", "nvidia-headless-580")
    + lists.listed("550.163.01-0ubuntu0.24.04.2", "nvidia-driver-550-open", "nvidia-headless-550")
    + lists.listed("535.261.03-0ubuntu2", "nvidia-fabricmanager-535")
)


def test_what_a_change_of_branch_left_behind_is_no_second_driver_and_may_change_along() -> None:
    mine = made(LEFT)
    assert (mine.version, mine.split) == ("580.159.03", ())
    left = {"nvidia-driver-550-open", "nvidia-headless-550", "nvidia-fabricmanager-535"}
    assert not left & {package.name for package in mine.members}
    assert left <= mine.names
    found = driverversions.driver_packages(build.host(packages=lists.of(LEFT)))
    assert [package.name for package in found] == ["libnvidia-compute-580", "nvidia-driver-580-open"]


@pytest.mark.parametrize(
    "lines",
    [
        lists.listed(UBUNTU, "nvidia-driver-580-open", "libnvidia-compute-580")
        + lists.listed("570.211.01-0ubuntu1", "nvidia-utils-570"),
        lists.listed(UBUNTU, "libnvidia-compute-580")
        + lists.listed("570.211.01-0ubuntu1", "nvidia-driver-570-open", "nvidia-utils-570"),
        # Both of one role, and the new one is not whole.
        lists.listed(UBUNTU, "libnvidia-compute-580")
        + lists.listed(UBUNTU, "nvidia-utils-580", status="iU ")
        + lists.listed("570.211.01-0ubuntu1", "nvidia-utils-570"),
        # The later one is the one that is too much: nothing stands in for it.
        lists.listed("570.211.01-0ubuntu1", "nvidia-driver-570-open", "libnvidia-compute-570")
        + lists.listed(UBUNTU, "nvidia-dkms-580-open"),
    ],
)
def test_a_change_of_branch_that_stopped_half_way_is_two_drivers(lines: str) -> None:
    assert made(lines).version is None


def test_tools_are_named_where_they_are_offered_and_never_missing() -> None:
    driver = lists.listed("550.163.01-2", "nvidia-driver", "libcuda1:amd64")
    tools = ("nvidia-persistenced", "nvidia-settings", "nvidia-modprobe", "nvidia-xconfig", "libxnvctrl0:amd64")
    mine = made(driver, lists.listed("550.163.01-1", *tools))
    offers = dict.fromkeys(("nvidia-driver", "libcuda1", "nvidia-settings"), ("550.200.01-1",))
    wanted = transaction.make(mine, "550.200.01", offers)
    assert wanted.missing == ()
    assert wanted.words == ("libcuda1=550.200.01-1", "nvidia-driver=550.200.01-1", "nvidia-settings=550.200.01-1")
    # At another version than the driver they are no second driver either, and may change along, but not go.
    mine = made(driver, lists.listed("535.171.04-1", *tools))
    assert (mine.version, mine.split) == ("550.163.01", ())
    done = "Inst libcuda1 [550.163.01-2] (550.200.01-1 r [amd64])\nInst nvidia-driver [550.163.01-2] (550.200.01-1 r [amd64])\n"
    for line, said in (
        ("Inst nvidia-modprobe [535.171.04-1] (550.200.01-1 r [amd64])\n", ()),
        ("Remv nvidia-persistenced [535.171.04-1]\n", ("nvidia-persistenced would be removed",)),
    ):
        found = transaction.simulated(done + line)
        wanted = transaction.make(mine, "550.200.01", dict.fromkeys(("nvidia-driver", "libcuda1"), ("550.200.01-1",)))
        assert transaction.refusals(found, wanted, mine, ()) == said


def test_a_whole_version_is_for_the_parts_that_have_it_and_the_rest_come_at_the_same_driver() -> None:
    mine = made(lists.listed("580.126.09-1ubuntu1", "nvidia-open-580", "libnvidia-compute-580", "nvidia-settings"))
    mine = dataclasses.replace(mine, members=(*mine.members, Package("nvidia-fabricmanager", "580.126.09-1", "ii ")))
    offers = {
        "nvidia-open-580": ("580.159.03-1ubuntu2", "580.159.03-1ubuntu1"),
        "libnvidia-compute-580": ("580.159.03-1ubuntu2", "580.159.03-1ubuntu1"),
        "nvidia-fabricmanager": ("580.159.03-1",),
        "nvidia-settings": ("580.159.03-1ubuntu1",),
    }
    wanted = transaction.make(mine, "580.159.03-1ubuntu1", offers)
    assert wanted.missing == ()
    assert dict(wanted.wanted)["nvidia-fabricmanager"] == "580.159.03-1"
    assert {version for name, version in wanted.wanted if name != "nvidia-fabricmanager"} == {"580.159.03-1ubuntu1"}
    assert set(transaction.make(mine, "580.159.03-9", offers).missing) == set(offers) - {"nvidia-settings"}


@pytest.mark.parametrize("fabric", [("580.159.03-1ubuntu1",), ("580.159.03-1",)])
def test_the_revision_that_most_parts_have_is_the_drivers(fabric: tuple[str, ...]) -> None:
    new, usual = "580.159.03-2ubuntu1", "580.159.03-1ubuntu1"
    called = ("libnvidia-compute-580", "nvidia-open-580", "nvidia-utils-580", "nvidia-dkms-580-open")
    mine = made(lists.listed("580.126.09-1ubuntu1", *called, "nvidia-fabricmanager"))
    offers = dict(zip(called, [(new, usual), (new, usual), (usual,), (usual,)], strict=True))
    found = dict(transaction.make(mine, "580.159.03", {**offers, "nvidia-fabricmanager": fabric}).wanted)
    assert found.pop("nvidia-fabricmanager") == fabric[0]
    assert set(found.values()) == {usual}


def test_nvlink_5_comes_along_with_its_subnet_manager() -> None:
    mine = made(
        lists.listed("580.159.03-1ubuntu1", "nvidia-open-580", "libnvidia-compute-580")
        + lists.listed("580.159.03-1", "nvlink5-580", "nvidia-fabricmanager")
        + lists.listed("2025.06.5-1", "nvlsm")
    )
    assert (mine.version, mine.split) == ("580.159.03", ())
    called = ("nvidia-open", "libnvidia-compute", "nvlink5", "nvidia-fabricmanager")
    wanted = transaction.make(mine, "590.48.01", dict.fromkeys(called, ("590.48.01-1",)))
    assert wanted.words == tuple(f"{name}=590.48.01-1" for name in sorted(called))
    said = "".join(f"Inst {name} (590.48.01-1 r [amd64])\n" for name in called[:3])
    said += "Inst nvidia-fabricmanager [580.159.03-1] (590.48.01-1 r [amd64])\nInst nvlsm [2025.06.5-1] (2025.10.12-1 r [amd64])\n"
    said += "".join(f"Remv {name} [1]\n" for name in ("nvidia-open-580", "libnvidia-compute-580", "nvlink5-580"))
    assert transaction.refusals(transaction.simulated(said), wanted, mine, ()) == ()


def test_fabric_manager_is_neither_a_library_nor_a_package_that_asks_for_it() -> None:
    def manager(lines: str) -> str | None:
        found = family.of(lists.of(lines)).fabric_manager
        return found.name if found else None

    assert manager(lists.NVIDIA) == "nvidia-fabricmanager"
    asking = ("cuda-drivers-fabricmanager-580", "nvidia-fabricmanager-dev-580", "libnvidia-nscq-580")
    assert manager(lists.listed(UBUNTU, "nvidia-driver-580", *asking)) is None
    assert manager(lists.listed(UBUNTU, "nvidia-driver-580", *asking, "nvidia-fabricmanager-580")) == "nvidia-fabricmanager-580"
    switches = build.host(sources={**build.host().sources, "fabricmanager": build.source(data={"nvswitches": 4})})
    mine = family.of(lists.of(lists.NVIDIA))
    assert preflight.fabric(switches, mine, ("libnvidia-nscq", "nvidia-fabricmanager-dev")).grade is Grade.STOP


OLD_MODULE, SIGNED = "linux-modules-nvidia-580-6.8.0-138-generic", "linux-signatures-nvidia-6.8.0-138-generic"


@pytest.mark.parametrize(
    ("brought", "grade"),
    [
        (f"Inst {OLD_MODULE} [6.8.0-138.138] (6.8.0-138.138+1 r [amd64])\n", Grade.OK),
        ("", Grade.STOP),
        (f"Inst {SIGNED} [6.8.0-138.138] (6.8.0-138.138+1 r [amd64])\n", Grade.STOP),
        ("Inst linux-objects-nvidia-580-6.8.0-138-generic (6.8.0-138.138+1 r [amd64])\n", Grade.STOP),
        ("Inst linux-modules-nvidia-570-6.8.0-138-generic (6.8.0-138.138+1 r [amd64])\n", Grade.STOP),
        ("Inst linux-modules-nvidia-580-6.8.0-38-generic (6.8.0-38.38+1 r [amd64])\n", Grade.STOP),
    ],
)
def test_a_built_module_is_one_that_the_transaction_brings_and_no_part_of_one(brought: str, grade: Grade) -> None:
    mine = made(lists.listed(UBUNTU, "nvidia-driver-580"), lists.listed("6.8.0-138.138", OLD_MODULE, SIGNED))
    simulation = transaction.simulated(f"Inst nvidia-driver-580 [{UBUNTU}] ({NEWER} r [amd64])\n{brought}")
    built = transaction.modules(simulation, NEW)
    assert preflight.kernels(mine, ["6.8.0-138-generic"], {}, True, built)[0].grade is grade


def test_a_kernels_number_is_no_branch() -> None:
    assert names.branch(SIGNED) is None
    assert names.renamed(SIGNED, "590.48.01") == (SIGNED,)
    assert names.branch(OLD_MODULE) == "580"


def test_libraries_of_a_second_architecture_are_packages_of_their_own() -> None:
    mine = family.of(
        Package(name, UBUNTU, "ii ") for name in ("nvidia-driver-580", "libnvidia-compute-580", "libnvidia-compute-580:i386")
    )
    assert f"libnvidia-compute-580:i386={NEWER}" in words(mine, NEW, NEWER)
    assert "libnvidia-compute-590:i386" in transaction.candidates(mine, "590.48.01")
    found = transaction.simulated(
        "Inst libnvidia-compute-580 [1] (2 r [amd64]) [libnvidia-compute-580:i386 ]\n"
        "Inst libnvidia-compute-580:i386 [1] (3 r [i386])\nInst libc6:amd64 [1] (4 r [amd64])\nRemv libx:i386 [1]\n"
    )
    assert found.installs == {
        "libnvidia-compute-580": ("1", "2"),
        "libnvidia-compute-580:i386": ("1", "3"),
        "libc6": ("1", "4"),
    }
    assert found.removes == ("libx:i386",)


def test_back_from_names_without_a_branch_to_those_with_one() -> None:
    mine = made(lists.listed("590.48.01-1ubuntu1", "nvidia-driver-open", "libnvidia-compute", "nvidia-open"))
    older = "580.159.03-1ubuntu1"
    offers = dict.fromkeys(("nvidia-driver-580-open", "libnvidia-compute-580", "nvidia-open-580", "nvidia-settings"), (older,))
    assert set(offers) - {"nvidia-settings"} <= set(transaction.candidates(mine, "580.159.03"))
    assert transaction.make(mine, "580.159.03", offers).words == tuple(
        f"{name}={older}" for name in ("libnvidia-compute-580", "nvidia-driver-580-open", "nvidia-open-580")
    )
    assert names.renamed("libnvidia-compute", "590.44.01", "590.48.01") == ("libnvidia-compute",)
