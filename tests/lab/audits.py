"""Audits of a machine that may be slow: one in which a source that counts had no time is repeated."""

from __future__ import annotations

import re

import pytest

from lab.audit import audit

ORDER = ("fail", "unknown", "warn", "pass", "not-applicable")
#: The sources that a row on the host's faults rests on, and those that placement alone does (sysfs knows the nodes too).
IN_TIME = ("nvidia.topo", "nvml", "processes", "nccl.logs")
PLACED = ("processes", "nccl.logs")
#: What a machine under emulation beside others may take; every source's own limit grows with it.
WHOLE_S = 300


def worst(machine: str, needs: tuple[str, ...] = PLACED) -> dict[str, tuple[str, str]]:
    """The worst finding of each id in an audit in which the sources that are needed answered; six audits may be tried."""
    late: list[str] = []
    for _attempt in range(6):
        found: dict[str, tuple[str, str]] = {}
        for one in audit(machine, None, "--timeout", str(WHOLE_S)).verdicts:
            if one.id not in found or ORDER.index(one.status) < ORDER.index(found[one.id][0]):
                found[one.id] = (one.status, one.summary)
        unanswered = re.split(r"[:,]? ", found["host.reachable"][1])
        late = [name for name in needs if name in unanswered]
        if not late and len(found) > 1:
            return found
    pytest.fail(f"the machine was too slow six times: {', '.join(late)}")
