"""A start's proof on a test's machine, and a stand-in for systemd that remembers what it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nearsocket.model.start import Start
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.verify import atstart
from tests.onhost.verify.machine import Machine, start

STOP = "systemctl stop --no-block -- nearsocket-sglang-a.service"
RESTART = "systemctl restart --no-block -- nearsocket-sglang-a.service"


def prove(machine: Machine, given: Start, system: System | None = None) -> int:
    """The proof of that start, where systemd answers so; its exit code."""
    machine.managed(given)
    return atstart.main([f"--replica={given.replica}"], machine.tree, Systemctl(system or System()))


class System:
    """What systemd is asked for; `refuses` is its answer where it takes no job."""

    def __init__(self, refuses: str = "", see: Callable[[], object] = lambda: None) -> None:
        self.refuses, self.see, self.asked, self.seen = refuses, see, [], []  # type: ignore[var-annotated]

    def __call__(self, argv: Sequence[str], limit_s: float) -> Output:
        self.asked.append(" ".join(argv))
        self.seen.append(self.see())
        return Output(1, "", self.refuses) if self.refuses else Output(0, "", "")


def quick(**changes: Any) -> Start:
    """Without a request: what is judged is there already."""
    return start(verify={"request": False, **changes.pop("verify", {})}, **changes)
