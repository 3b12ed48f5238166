"""What the steps meet of a distribution's packages: Debian's module, Ubuntu's built ones, libraries for 32-bit programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nearsocket.model.driver.orders import Action
from nearsocket.model.driver.preflight import Grade
from nearsocket.model.host import Package
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.reprovision import changing, kept, rehearse
from nearsocket.onhost.reprovision.apt import Apt
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import KERNEL, NEW, OLD, STANDINS
from tests.onhost.reprovision.test_steps import WHOLE


def test_an_upgrade_finds_the_module_that_debian_names_after_its_package(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answer: Callable[[list[str], str | None], Output] = site.machine._modinfo

    def modinfo(words: list[str], folder: str | None) -> Output:
        asked.append(words[-1])
        said = Output(1, "", f"modinfo: ERROR: Module {words[-1]} not found.")
        return answer(words, folder) if words[-1] == "nvidia-current" else said

    monkeypatch.setattr(site.machine, "_modinfo", modinfo)
    (site.root / "etc/modprobe.d").mkdir()
    (site.root / "etc/modprobe.d/nvidia.conf").write_text("install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n")
    site.good(*WHOLE[:3])
    assert (site.versions, set(asked)) == ({NEW}, {"nvidia-current"})


MODULE = f"linux-modules-nvidia-580-{KERNEL}"


@pytest.mark.parametrize(
    ("brought", "grade"),
    [
        (f"Inst {MODULE} [6.1.0-30] (6.1.0-30+1 r [amd64])\n", Grade.OK),
        (f"Inst linux-signatures-nvidia-{KERNEL} [6.1.0-30] (6.1.0-30+1 r [amd64])\n", Grade.STOP),
        ("", Grade.STOP),
    ],
)
def test_a_driver_that_would_go_past_its_built_module_is_not_begun(
    site: Site, monkeypatch: pytest.MonkeyPatch, brought: str, grade: Grade
) -> None:
    packages = dict.fromkeys(("nvidia-driver-580", "libnvidia-compute-580"), f"{OLD}-1")
    packages.update(dict.fromkeys((MODULE, f"linux-signatures-nvidia-{KERNEL}"), "6.1.0-30"))
    site.machine.change(
        packages={name: {"version": version, "held": False, "half": False} for name, version in packages.items()},
        repo={name: [f"{NEW}-1"] for name in ("nvidia-driver-580", "libnvidia-compute-580")},
    )
    said = "".join(f"Inst {name} [{OLD}-1] ({NEW}-1 r [amd64])\n" for name in ("nvidia-driver-580", "libnvidia-compute-580"))
    monkeypatch.setattr(Apt, "simulate", lambda _self, _words: Output(0, said + brought, ""))
    looks = {look.check: look.grade for look in site.do(Action.PREFLIGHT).looks}
    assert (looks["transaction"], looks["kernels"]) == (Grade.OK, grade)


def test_packages_that_went_past_their_module_by_themselves_are_found_before_anything_is_stopped(site: Site) -> None:
    for name in STANDINS:
        site.machine._set(name, version=f"{NEW}-0standin1", held=False)
    assert [str(look).partition(" (")[0] for look in site.do(Action.PREFLIGHT).stops] == [
        f"kernels: the packages are at {NEW}, and the module is not: {KERNEL} has {OLD}"
    ]
    assert site.do(Action.PREPARE).error is not None
    assert site.up == set(UNITS)


COMPUTE, SECOND = "libnvidia-compute-580", "libnvidia-compute-580:i386"


class Repository:
    """What apt-get download and dpkg-deb do, with a repository of these architectures."""

    def __init__(self, *architectures: str) -> None:
        self.architectures = architectures

    def __call__(self, argv: Sequence[str], _limit_s: float) -> Output:
        words = list(argv)
        if "dpkg-query" in words:
            return Output(0, f"{COMPUTE}:amd64\t{OLD}-1\tii \n{SECOND}\t{OLD}-1\thi \nlibcuda1\t{OLD}-1\tii \n", "")
        if "showhold" in words:
            return Output(0, f"{SECOND}\nlibc6:amd64\n", "")
        if "download" not in words:
            return Output(0, "", "")
        name, _, version = words[-1].partition("=")
        name, _, architecture = name.partition(":")
        if (architecture or "amd64") in self.architectures:
            (Path(words[4]) / f"{name}_{version}_{architecture or 'amd64'}.deb").write_text("x")
            return Output(0, "", "")
        return Output(100, "E: not found\n", "")


@pytest.mark.parametrize(("architectures", "grade"), [(("amd64", "i386"), Grade.OK), (("amd64",), Grade.WARN)])
def test_the_way_back_has_the_libraries_of_both_architectures_or_says_that_it_has_not(
    tmp_path: Path, architectures: tuple[str, ...], grade: Grade
) -> None:
    tree, apt = Tree(tmp_path), Apt("", Repository(*architectures))
    members = [Package(name, f"{OLD}-1", "ii ") for name in (COMPUTE, SECOND)]
    look = rehearse._way_back(tree, apt, members)
    assert look.grade is grade
    assert (SECOND in look.text) is (grade is Grade.WARN)
    words = changing.previous_words(tree, {package.name: package.version for package in members})
    found = [word.rpartition("/")[2] for word in words]
    second = f"{COMPUTE}_{OLD}-1_i386.deb" if grade is Grade.OK else f"{SECOND}={OLD}-1"
    assert found == [f"{COMPUTE}_{OLD}-1_amd64.deb", second]
    assert {path.name for path in tree.at(kept.PREVIOUS).iterdir()} == {word for word in found if word.endswith(".deb")}


def test_a_second_architecture_stays_in_a_name_and_the_first_is_dropped() -> None:
    apt = Apt("", Repository())
    assert [package.name for package in apt.installed()] == [COMPUTE, SECOND, "libcuda1"]
    assert apt.holds() == {SECOND, "libc6"}


def test_sources_of_a_repository_in_a_folder_of_the_machine_are_tried_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt copies nothing of it where it only downloads (seen on the lab with apt 3.0)."""
    site.by_dkms(monkeypatch)
    site.machine.fault("local-repository")
    looks = {look.check: str(look) for look in site.good(Action.REHEARSE).looks}
    assert looks["trial build"] == f"trial build: the module of {NEW} builds for {KERNEL}"
    site.machine.fault("local-repository", "dkms-fails")
    assert [look.check for look in site.do(Action.REHEARSE).stops] == ["trial build"]
