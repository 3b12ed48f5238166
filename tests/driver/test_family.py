"""Which packages are one driver, on each distribution, and what one transaction names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.driver import family, preflight, transaction
from nearsocket.model.driver.transaction import Simulation, Transaction
from nearsocket.model.host import Package
from tests.driver import packages as lists

ALL = {
    "debian": (lists.DEBIAN, "535.247.01", "nvidia-kernel-dkms"),
    "debian's tesla": (lists.DEBIAN_TESLA, "535.216.03", "nvidia-tesla-535-kernel-dkms"),
    "ubuntu server open, built": (lists.UBUNTU_SERVER_OPEN, "580.95.05", None),
    "ubuntu open, dkms": (lists.UBUNTU_DKMS, "580.95.05", "nvidia-dkms-580-open"),
    "nvidia's repository": (lists.NVIDIA, "590.48.01", "nvidia-kernel-open-dkms"),
    "stand-ins": (lists.STANDIN, "580.95.05", None),
}


@pytest.mark.parametrize("case", ALL)
def test_a_driver_is_known_by_the_version_that_its_packages_share(case: str) -> None:
    text, version, dkms = ALL[case]
    found = family.of(lists.of(text))
    assert (found.version, found.split, found.half) == (version, (), ())
    assert (found.dkms.name if found.dkms else None) == dkms
    assert {package.version for package in found.members} != set()
    strangers = {package.name for package in lists.of(lists.OTHERS)} | {"nvidia-installer-cleanup", "nvidia-support"}
    assert not strangers & found.names


@pytest.mark.parametrize("case", ALL)
def test_one_transaction_takes_every_member_or_says_which_it_cannot(case: str) -> None:
    text, version, _ = ALL[case]
    found = family.of(lists.of(text))
    suffix = found.members[0].version.partition("-")[2]
    newer = f"{version.partition('.')[0]}.200.01"
    offers = {package.name: (f"{newer}-{suffix}", package.version) for package in found.named}
    made = transaction.make(found, newer, offers)
    assert {name for name, _ in made.wanted} == {package.name for package in found.named}
    assert {v for _, v in made.wanted} == {f"{newer}-{suffix}"}
    assert made.missing == ()
    offers.pop(found.named[0].name)
    assert transaction.make(found, newer, offers).missing == (found.named[0].name,)


def test_what_has_the_version_in_its_name_is_a_dependency_and_built_modules_go_along() -> None:
    found = family.of(lists.of(lists.UBUNTU_SERVER_OPEN))
    assert "nvidia-firmware-580-server-580.95.05" not in {package.name for package in found.named}
    offers = {package.name: ("580.105.08-0ubuntu0.24.04.1",) for package in found.named}
    made = transaction.make(found, "580.105.08", offers)
    assert made.along == ("linux-modules-nvidia-580-server-open-6.8.0-87-generic", "linux-modules-nvidia-580-server-open-generic")
    assert made.words[-2:] == made.along


def test_another_branch_takes_other_names() -> None:
    found = family.of(lists.of(lists.UBUNTU_DKMS))
    offers = {
        name.replace("-580", "-590"): ("590.48.01-0ubuntu1",)
        for name in ("nvidia-driver-580-open", "nvidia-dkms-580-open", "nvidia-utils-580", "nvidia-kernel-common-580")
    }
    offers["libnvidia-compute"] = ("590.48.01-0ubuntu1",)  # without a branch, as NVIDIA's repository names it from 590 on
    made = transaction.make(found, "590.48.01", offers)
    assert made.missing == ()
    assert "nvidia-driver-590-open=590.48.01-0ubuntu1" in made.words
    assert "libnvidia-compute=590.48.01-0ubuntu1" in made.words
    assert set(offers) <= set(transaction.candidates(found, "590.48.01"))


def test_two_repositories_do_not_mix_where_one_has_all() -> None:
    found = family.of(lists.of(lists.STANDIN))
    offers: dict[str, tuple[str, ...]] = {p.name: ("580.105.08-1", "580.105.08-0standin1") for p in found.named}
    offers["nvidia-utils-standin"] = ("580.105.08-0standin1",)
    assert {version for _, version in transaction.make(found, "580.105.08", offers).wanted} == {"580.105.08-0standin1"}


def test_packages_of_two_versions_are_no_driver_and_half_installed_ones_are_named() -> None:
    split = lists.of(lists.STANDIN + lists.listed("580.105.08-0standin1", "nvidia-dkms-standin"))
    found = family.of(split)
    assert found.version is None
    assert len(found.split) == 4
    half = family.of(lists.of(lists.STANDIN.replace("hi ", "hF ")))
    assert len(half.half) == 3
    assert half.version == "580.95.05"


def test_a_pin_is_read_from_its_packages_name() -> None:
    pinned = lists.of(lists.NVIDIA + lists.listed("590-1", "nvidia-driver-pinning-590"))
    assert family.of(pinned).pins == ("590",)


MADISON = """\
nvidia-kernel-standin | 580.105.08-0standin1 | file:/srv/repo ./ Packages
nvidia-kernel-standin | 580.95.05-0standin1 | file:/srv/repo ./ Packages
libcuda1 | 535.247.01-1~deb12u1 | mirror bookworm/non-free amd64 Packages
libcuda1 | 535.247.01-1~deb12u1 | mirror bookworm-security/non-free amd64 Packages
"""


def test_madisons_table_is_read_newest_first_each_once() -> None:
    assert transaction.offered(MADISON) == {
        "nvidia-kernel-standin": ("580.105.08-0standin1", "580.95.05-0standin1"),
        "libcuda1": ("535.247.01-1~deb12u1",),
    }


SIMULATED = """\
Reading package lists...
The following held packages will be changed:
  libnvidia-compute-standin nvidia-kernel-standin nvidia-utils-standin
Inst nvidia-kernel-standin [580.95.05-0standin1] (580.105.08-0standin1 localhost [amd64])
Inst nvidia-utils-standin [580.95.05-0standin1] (580.105.08-0standin1 localhost [amd64]) []
Inst libnvidia-compute-standin:amd64 [580.95.05-0standin1] (580.105.08-0standin1 localhost [amd64])
Conf libnvidia-compute-standin (580.105.08-0standin1 localhost [amd64])
"""


def simulation(more: str = "") -> tuple[Simulation, Transaction, family.Family]:
    found = family.of(lists.of(lists.STANDIN))
    offers = {package.name: ("580.105.08-0standin1",) for package in found.named}
    return transaction.simulated(SIMULATED + more), transaction.make(found, "580.105.08", offers), found


def test_a_simulation_that_does_what_was_asked_is_not_refused() -> None:
    simulated, wanted, found = simulation()
    assert simulated.installs["libnvidia-compute-standin"] == ("580.95.05-0standin1", "580.105.08-0standin1")
    assert transaction.refusals(simulated, wanted, found, {"nvidia-kernel-standin", "linux-image-amd64"}) == ()


@pytest.mark.parametrize(
    ("more", "holds", "said"),
    [
        ("Remv brake [1.0]\n", set(), "brake would be removed"),
        ("Remv brake [1.0]\n", {"brake"}, "brake is held, and the transaction changes it"),
        ("Inst libc6 [2.36] (2.37 Debian [amd64])\n", {"libc6"}, "libc6 is held, and the transaction changes it"),
    ],
)
def test_a_foreign_package_that_goes_or_is_held_is_refused(more: str, holds: set[str], said: str) -> None:
    simulated, wanted, found = simulation(more)
    assert transaction.refusals(simulated, wanted, found, holds) == (said,)


def test_a_member_that_would_stay_behind_is_refused() -> None:
    _, wanted, found = simulation()
    assert len(transaction.refusals(Simulation(), wanted, found, ())) == 3


names = st.from_regex(r"(nvidia|libnvidia|linux-modules-nvidia|firmware-nvidia)-[a-z0-9-]{1,20}", fullmatch=True)
versions = st.sampled_from(["580.95.05-1", "580.105.08-1", "535.1.2-0ubuntu1", "1.2-3", "", "x"])


@given(st.lists(st.tuples(names, versions, st.sampled_from(["ii ", "hi ", "rc ", "iF ", "", "i"]))))
def test_any_list_gives_a_family_whose_members_have_one_version(entries: list[tuple[str, str, str]]) -> None:
    found = family.of(lists.of("".join(f"{name}\t{version}\t{status}\n" for name, version, status in entries)))
    assert len({transaction.upstream(package.version) for package in found.members}) <= 1
    made = transaction.make(found, "580.105.08", {package.name: ("580.105.08-9",) for package in found.named})
    assert len(made.wanted) + len(made.missing) <= len(found.named) or not found.named


@pytest.mark.parametrize("word", ["580.105.08", "580.105.08-0ubuntu1", "1:580.105.08-1~deb12u1"])
def test_a_version_is_a_target(word: str) -> None:
    assert transaction.TARGET.match(word)


@pytest.mark.parametrize("word", ["", "580", "latest", "580.105.08; reboot", "-580.1", "580.105.08 ", "580.1.2=3"])
def test_anything_else_is_none(word: str) -> None:
    assert not transaction.TARGET.match(word)


CHANGES = """Inst nvidia-driver-580 [580.95.05-0ubuntu1] (580.105.08-0ubuntu1 r [amd64])
Inst nvidia-firmware-580-580.105.08 (580.105.08-0ubuntu1 r [amd64])
Inst libfoo9 (1.0 r [amd64])
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", None),
        ("Inst docker-ce [5:27.0] (5:29.0 r [amd64])\n", "docker-ce 5:27.0 would become 5:29.0"),
        ("Inst libc6 [2.39-0] (2.39-9 r [amd64])\n", "libc6 2.39-0 would become 2.39-9"),
        ("Inst linux-image-6.8.0-99-generic (6.8.0-99 r [amd64])\n", "linux-image-6.8.0-99-generic: another kernel would come"),
        ("Remv nvidia-firmware-580-580.95.05 [580.95.05-0ubuntu1]\n", None),
    ],
)
def test_what_is_not_the_drivers_may_come_but_not_change_and_no_kernel_comes(line: str, said: str | None) -> None:
    mine = family.of([Package("nvidia-driver-580", "580.95.05-0ubuntu1", "ii ")])
    wanted = transaction.make(mine, "580.105.08", {"nvidia-driver-580": ["580.105.08-0ubuntu1"]})
    found = transaction.refusals(transaction.simulated(CHANGES + line), wanted, mine, [])
    assert found == ((said,) if said else ())


def test_built_modules_of_another_branch_are_asked_for_and_an_old_one_is_no_module_of_it() -> None:
    mine = family.of(
        [
            Package("nvidia-driver-570", "570.86.15-0ubuntu1", "ii "),
            Package("linux-modules-nvidia-570-6.8.0-31-generic", "6.8.0-31.31", "ii "),
        ]
    )
    new = "linux-modules-nvidia-580-6.8.0-31-generic"
    assert new in transaction.candidates(mine, "580.105.08")
    driver = {"nvidia-driver-580": ["580.105.08-0ubuntu1"]}
    along = transaction.make(mine, "580.105.08", {**driver, new: ["6.8.0-31.31+1"]}).along
    assert along == (new,)
    assert preflight.kernels(mine, ["6.8.0-31-generic"], {}, True, along)[0].grade is preflight.Grade.OK
    none = transaction.make(mine, "580.105.08", driver).along
    assert preflight.kernels(mine, ["6.8.0-31-generic"], {}, True, none)[0].grade is preflight.Grade.STOP
