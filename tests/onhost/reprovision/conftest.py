"""A host with two replicas that serve, whose driver can be upgraded; and what tests say to it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.driver.orders import Action, Answer, Order, State
from nearsocket.model.places import hold_file, let_start
from nearsocket.model.plan.values import Gate
from nearsocket.model.settings import OnChange, Relief, Runtime
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.start import Start
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.collect import command
from nearsocket.onhost.reprovision import entry, facts, kept, stopping
from nearsocket.onhost.reprovision.apt import Apt
from tests.build import gpu
from tests.onhost.apply.made import IMAGE, generation
from tests.onhost.apply.made import Host as Installation
from tests.onhost.reprovision.standin import DKMS, KERNEL, NEW, OLD, Machine

UNITS = ("nearsocket-x-a.service", "nearsocket-x-b.service")


def waiting(name: str) -> str:
    """What a replica's unit of the shipped template has of an upgrade."""
    return f"engine\nConditionPathExists=|!{hold_file(name)}\nConditionPathExists=|{let_start(name)}"


def records(*names: str, gpus: int = 1, gate: Gate = Gate.CDI_UUID) -> dict[str, str]:
    """The start records of replicas with that many GPUs each, from the host's first on."""
    found = {}
    for at, name in enumerate(names):
        pcis = tuple(gpu(at * gpus + number).pci for number in range(gpus))
        unit = f"nearsocket-x-{name}.service"
        found[f"replicas/{name}.json"] = Start(
            name, Runtime.DOCKER, f"nearsocket-x-{name}", unit, IMAGE, pcis, gate, OnChange.UNBOUND, "0", Relief.AUTO, 5,
            "/models/m", None, None, {}, {}, {}, "http://127.0.0.1:1/health", 60,
        ).to_json()  # fmt: skip
    return found


class Site:
    """The host: `do(action)` takes a step as the program would."""

    def __init__(self, root: Path) -> None:
        self.root, self.machine = root, Machine(root)
        self.tree = Tree(root)
        installation = Installation(root)
        installation.system = self.machine
        for path in ("proc/sys/kernel/random", "sys/module/nvidia", "var/lib/dpkg", "boot", "usr", "etc/cdi"):
            (root / path).mkdir(parents=True, exist_ok=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("boot-1")
        (root / "sys/module/nvidia/version").write_text(f"{OLD}\n")
        (root / "var/lib/dpkg/status").write_text("")
        (root / f"boot/initrd.img-{KERNEL}").write_text("old")
        done = installation.apply(generation({name: waiting(name) for name in "ab"}, extra=records("a", "b")))
        assert done.error is None, done

    def do(self, action: Action, to: str = NEW, **more: Any) -> Answer:
        """One step, by whoever; each time as from a new process."""
        order = Order(action, more.pop("id", "job-1"), "ops", to, accept_unknown=more.pop("accept_unknown", True), **more)
        return entry._locked(order, self.tree, Systemctl(self.machine), Apt(str(self.tree.at(kept.NEXT)), self.machine))

    def good(self, *actions: Action, **more: Any) -> Answer:
        """Steps that must succeed; the last one's answer."""
        answer = None
        for action in actions:
            if action is Action.REBOOT:
                answer = self.do(action, **more)
                if self.machine.state["rebooting"]:
                    self.machine.boot()
            elif action is Action.START:
                for replica in ("a", "b"):
                    answer = self.do(action, replica=replica, **more)
                    assert answer.error is None, answer
            else:
                answer = self.do(action, **more)
            assert answer is not None
            assert answer.error is None, answer
        assert answer is not None
        return answer

    def killed_at(self, text: str, action: Action, before: bool = True, **more: Any) -> None:
        """The step, by a process that dies at that call."""
        self.machine.change(die_at=[text, before])
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                self.do(action, **more)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        self.machine.change(die_at=None)
        assert os.WIFSIGNALED(status), f"{text!r} was never called"

    @property
    def state(self) -> State:
        found = kept.read(self.tree)
        assert found is not None
        return found

    @property
    def up(self) -> set[str]:
        return {unit for unit in self.machine.state["active"] if unit in UNITS}

    @property
    def versions(self) -> set[str]:
        return {package["version"].partition("-")[0] for package in self.machine.state["packages"].values()}

    @property
    def held(self) -> set[str]:
        return {name for name, package in self.machine.state["packages"].items() if package["held"]}

    def by_dkms(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on the module is built by DKMS here, and all that it needs is there."""
        now = self.machine.state
        for known in (now["packages"], now["repo"]):
            known[DKMS] = known.pop("nvidia-kernel-standin")
        self.machine.change(packages=now["packages"], repo=now["repo"])
        makefile = self.root / f"lib/modules/{KERNEL}/build/Makefile"
        makefile.parent.mkdir(parents=True)
        makefile.write_text("")
        monkeypatch.setattr(facts, "compiler", lambda: True)

    def installs(self) -> int:
        """How many transactions were begun."""
        calls = [words for words in self.machine.state["calls"] if words[0] == "apt-get" and "install" in words]
        return sum("-s" not in words and "--download-only" not in words for words in calls)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The host, whose reading and commands are the stand-in's."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)  # what it guards against is not played here
    made = Site(tmp_path)
    monkeypatch.setattr(facts, "host_now", lambda *_: made.machine.host())
    monkeypatch.setattr(command, "run", made.machine)
    monkeypatch.setattr(facts, "SETTLE_S", 0.0)  # a stand-in's boot is over at once
    # The reading of a whole host has tests of its own, and takes seconds.
    monkeypatch.setattr(stopping, "collect", lambda _s, root: Snapshot("h", "2026-01-01T00:00:00Z", None, {}, {}))
    return made
