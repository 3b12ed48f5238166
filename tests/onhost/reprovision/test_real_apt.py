"""Words for apt, judged by the real apt over a made-up machine: packages in Ubuntu's shape, whole and broken half-way.

Nothing is installed: the machine is a status file and an index, and apt only says what it would do.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nearsocket.model.driver import family, transaction
from nearsocket.model.driver.orders import Action, Order, Phase, State
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect import command
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.reprovision import checks, steps
from nearsocket.onhost.reprovision.apt import Apt
from nearsocket.onhost.reprovision.work import Work

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None or shutil.which("dpkg") is None, reason="no apt here")

V570, OLD, NEW = "570.86.15-1", "580.95.05-1", "580.105.08-1"
WHOLE, UNPACKED, HALF = "install ok installed", "install ok unpacked", "install ok half-configured"
#: What waits for what is unpacked at the moment of a break.
Parts = dict[str, tuple[str, str]]


def stanza(name: str, version: str, depends: str, role: str) -> str:
    lines = [f"Package: {name}", f"Version: {version}", "Architecture: amd64", "Maintainer: nobody <nobody@localhost>"]
    lines += [f"Depends: {depends}"] if depends else []
    lines += [f"Provides: {role}", f"Conflicts: {role}", f"Replaces: {role}"] if role else []
    return "\n".join([*lines, "Description: made up"]) + "\n"


def driver(version: str) -> dict[str, str]:
    """A driver's packages by name, in Ubuntu's shape."""
    b, own = version.partition(".")[0], version.partition("-")[0]
    every = f"nvidia-utils-{b} (= {version}), libnvidia-compute-{b} (= {version}), libnvidia-gl-{b} (= {version}), "
    shapes = {
        f"nvidia-driver-{b}": (f"{every}nvidia-dkms-{b} (= {version})", ""),
        f"nvidia-dkms-{b}": (f"nvidia-firmware-{b}-{own}", "nvidia-dkms-kernel"),
        f"nvidia-firmware-{b}-{own}": ("", ""),
        f"nvidia-utils-{b}": (f"libnvidia-compute-{b}", "nvidia-utils"),
        f"libnvidia-compute-{b}": ("", "libnvidia-compute"),
        f"libnvidia-gl-{b}": (f"libnvidia-compute-{b} (= {version})", "libnvidia-gl"),
    }
    return {name: stanza(name, version, depends, role) for name, (depends, role) in shapes.items()}


class Machine:
    """A root with a package database of its own, asked by the real tools."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path in (
            "state/lists/partial",
            "cache/archives/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "repo",
            "dpkg/updates",
        ):
            (root / path).mkdir(parents=True)
        index = "".join(
            f"{text}Filename: ./{name}_{version}.deb\nSize: 100\nSHA256: {'0' * 64}\n\n"
            for version in (V570, OLD, NEW)
            for name, text in driver(version).items()
        )
        (root / "repo/Packages").write_text(index)
        (root / "etc/sources.list").write_text(f"deb [trusted=yes] file:{root}/repo ./\n")
        (root / "var/lib/dpkg").mkdir(parents=True)
        (root / "apt.conf").write_text(
            f'Dir "{root}"; Dir::State "{root}/state"; Dir::State::status "{root}/dpkg/status"; Dir::Cache "{root}/cache";\n'
            f'Dir::Etc "{root}/etc"; APT::Architecture "amd64"; APT::Architectures {{ "amd64"; }};\n'
            'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\n'  # a status file of the same second looks unchanged
            'APT::Sandbox::User "root"; Debug::NoLocking "1"; Acquire::Languages "none";\n'
        )
        self.has(dict.fromkeys(driver(OLD), WHOLE), OLD)
        assert self(["apt-get", "-q", "update"], 60).code == 0

    def has(self, states: dict[str, str], version: str, *more: tuple[dict[str, str], str]) -> None:
        """The machine has these packages, in these states of dpkg's, and no others."""
        lines = []
        for named, own in ((states, version), *more):
            for name, state in named.items():
                head, rest = driver(own)[name].split("\n", 1)
                lines.append(f"{head}\nStatus: {state}\n{rest}\n")
        (self.root / "dpkg/status").write_text("".join(lines))

    def __call__(self, argv: Sequence[str], limit_s: float) -> Output:
        """The real tool, over this database; what could not be asked of a made-up machine is answered as an empty one would."""
        words = list(argv)
        if "apt-mark" in words:
            return Output(0, "", "")
        if words[0] == "dpkg-query":
            words[1:1] = [f"--admindir={self.root}/dpkg"]
        return command.run(["env", f"APT_CONFIG={self.root}/apt.conf", "LC_ALL=C", *words], limit_s)

    def work(self, action: Action, frm: str, to: str) -> Work:
        """An upgrade that was begun when the machine was whole."""
        self.has(dict.fromkeys(driver(frm), WHOLE), frm)
        apt = Apt(str(self.root / "archives"), self)
        mine = family.of(apt.installed())
        target = to.partition("-")[0]
        assert mine.version == frm.partition("-")[0]
        wanted = transaction.make(mine, target, transaction.offered(apt.madison(transaction.candidates(mine, target))))
        problem, simulation = checks._simulated(apt, wanted, mine, wanted.words)
        assert (problem, wanted.missing) == (None, ())
        assert simulation is not None
        words = transaction.with_parts(wanted, simulation).words
        state = State(
            "id", "ops", "2026-01-01T00:00:00Z", frm.partition("-")[0], target, Phase.UPGRADING,
            packages={package.name: package.version for package in mine.members}, words=words,
        )  # fmt: skip
        return Work(Order(action, "id", "ops", target), Tree(self.root), apt, Systemctl(self), state)


def states(version: str, left: Sequence[str], state: str = WHOLE) -> dict[str, str]:
    """Of that driver's packages those whose names have one of these parts."""
    return {name: state for name in driver(version) if any(part in name for part in left)}


def same_branch(machine: Machine) -> None:
    machine.has(
        {name: WHOLE for name in driver(OLD) if "compute" not in name}, OLD, (states(NEW, ["libnvidia-compute"], UNPACKED), NEW)
    )


def half_a_branch(machine: Machine) -> None:
    left = states(V570, ["driver", "dkms", "firmware", "utils"])
    machine.has(left, V570, (states(NEW, ["compute", "gl"], UNPACKED), NEW))


def while_one_goes(machine: Machine) -> None:
    machine.has(states(V570, ["dkms", "firmware", "utils"]), V570)


def all_of_one_gone(machine: Machine) -> None:
    machine.has(states(V570, ["firmware"]), V570, (states(NEW, ["compute", "gl"], UNPACKED), NEW))


def unbuilt(machine: Machine) -> None:
    whole = {name: WHOLE for name in driver(NEW) if "driver" not in name and "dkms" not in name}
    machine.has({**whole, **states(NEW, ["dkms"], HALF), **states(NEW, ["driver"], UNPACKED)}, NEW)


BROKEN = [
    (OLD, same_branch),
    (V570, half_a_branch),
    (V570, while_one_goes),
    (V570, all_of_one_gone),
    (V570, unbuilt),
    (OLD, unbuilt),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("apt"))


@pytest.mark.parametrize(("frm", "broken"), BROKEN)
def test_a_transaction_that_broke_half_way_can_be_gone_on_with(
    machine: Machine, frm: str, broken: Callable[[Machine], None]
) -> None:
    work = machine.work(Action.UPGRADE, frm, NEW)
    broken(machine)
    mine = family.of(work.apt.installed())
    words = steps.forward_words(work, work.known())
    steps._judge(work, work.known(), words, mine)
    said = work.apt.simulate(words)
    assert said.code == 0
    here = {package.name for package in work.apt.installed()}
    after = (here | set(transaction.simulated(said.text).installs)) - set(transaction.simulated(said.text).removes)
    assert set(driver(NEW)) <= after
    assert not [name for name in after if "570" in name and "firmware" not in name]


@pytest.mark.parametrize(("frm", "broken"), BROKEN)
def test_a_transaction_that_broke_half_way_can_be_taken_back(machine: Machine, frm: str, broken: Callable[[Machine], None]) -> None:
    work = machine.work(Action.BACK, frm, NEW)
    broken(machine)
    words = steps._way_back(work, work.known(), family.of(work.apt.installed()))
    said = work.apt.simulate(words)
    assert said.code == 0
    found = transaction.simulated(said.text)
    after = ({package.name for package in work.apt.installed()} | set(found.installs)) - set(found.removes)
    assert set(driver(frm)) <= after
    others = [name for name in after - set(driver(frm)) if "firmware" not in name]
    assert others == []


def test_a_step_down_is_fetched_too(machine: Machine) -> None:
    """apt fetches no older version unless it may install one."""
    work = machine.work(Action.PREPARE, NEW, OLD)
    (machine.root / "archives/partial").mkdir(parents=True, exist_ok=True)
    said = work.apt.fetch(work.known().words).text
    assert "Packages were downgraded" not in said
    assert f"nvidia-driver-580_{OLD}.deb" in said, "it gets as far as the archives, which are made up"
