"""A new host's audit before anything is written there: failures that a deploy does not cure stop it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime

from nearsocket.control import waivers
from nearsocket.control.waivers import Waiver
from nearsocket.model.check import Check
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Finding, Status
from nearsocket.model.host import Host
from nearsocket.model.judge import judge
from nearsocket.model.rollout.proof import told
from nearsocket.model.text import one_line

#: What a deploy sees to, or judges by itself. Everything else (driver, GPUs, topology, kernel, memory of the host) is the host's
#: own and would be as wrong behind it.
CURED = frozenset(
    {
        # An engine that runs now: a replica's start brings its own binding, environment, /dev/shm and proof. One that is to be left
        # alone is not touched, and one that is in the way stops the deploy with its name.
        *("nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force", "nccl.cumem-preconditions"),
        *("nccl.shm-size", "nccl.conf-conflict", "memory.shm-mount-policy", "engine.start-verdict"),
        *("engine.binding", "engine.binding-conflict", "engine.cumem-environment", "engine.memory-locality"),
        # Page cache on the near nodes is taken off before each start.
        "memory.near-free",
        # The apply itself looks at that, just before it reloads, and has its own leave.
        "host.daemon-reload-risk",
    }
)


def _today() -> date:
    return datetime.now(UTC).date()


@dataclass(frozen=True)
class FirstLook:
    """The checks, the inventory's waivers, and the clock."""

    checks: tuple[Check, ...]
    waivers: tuple[Waiver, ...] = ()
    today: Callable[[], date] = _today

    def refuse(self, host: Host) -> None:
        """Raises NearsocketError, one line that names them, where that host has failures that a deploy does not cure."""
        found = in_the_way(waivers.apply(self.waivers, host.name, judge(host, self.checks), self.today()))
        if found:
            named = "; ".join(one_line(told(finding), 200) for finding in found[:3]) + (
                f"; and {len(found) - 3} more" if len(found) > 3 else ""
            )
            raise NearsocketError(
                f"expected a new host without failures that a deploy does not cure, found {named}",
                "nearsocket audit shows the remedies; a waiver in the inventory lets one be",
            )


def in_the_way(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Failures that are neither waived nor cured."""
    return tuple(f for f in findings if f.status is Status.FAIL and f.waived is None and f.id not in CURED)
