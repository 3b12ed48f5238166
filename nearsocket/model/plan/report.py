"""The plans of several hosts with what would change there, and the exit code: what the renderers take."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.changes import Difference
from nearsocket.model.errors import EXIT_CLEAN, EXIT_FAILURES
from nearsocket.model.generation import Manifest
from nearsocket.model.plan.values import Plan

#: `--check`: changes are pending (DESIGN, exit codes).
EXIT_PENDING = 4


class PlanStatus(str, enum.Enum):
    """`ready`: can be applied and changes something; `current`: nothing to do; `refused`; `failed`: not read or not rendered."""

    READY = "ready"
    CURRENT = "current"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class HostPlan:
    """One host: its plan (None where it was not read), the manifest and the changes (None where not known, `unknown` says why).

    `reason` and `hint` are set where it failed. `review`: files of a review folder that are not what is rendered.
    """

    name: str
    plan: Optional[Plan]
    manifest: Optional[Manifest]
    changes: Optional[Difference]
    reason: Optional[str] = None
    hint: Optional[str] = None
    unknown: Optional[str] = None
    review: tuple[str, ...] = ()

    @property
    def status(self) -> PlanStatus:
        """Whether it can be carried out, and whether there is anything to do."""
        if self.reason is not None or self.plan is None:
            return PlanStatus.FAILED
        if self.plan.refused:
            return PlanStatus.REFUSED
        return PlanStatus.CURRENT if self.changes is not None and self.changes.same else PlanStatus.READY


def exit_code(hosts: Iterable[HostPlan], check: bool, review: bool) -> int:
    """0, 2 where a host is refused or failed, 4 with `check` where changes are pending: in the review folder where there is one."""
    seen = tuple(hosts)
    if any(host.status in (PlanStatus.FAILED, PlanStatus.REFUSED) for host in seen):
        return EXIT_FAILURES
    pending = any(host.review for host in seen) if review else any(host.status is PlanStatus.READY for host in seen)
    return EXIT_PENDING if check and pending else EXIT_CLEAN
