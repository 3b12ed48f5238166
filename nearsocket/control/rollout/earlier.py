"""A rollout that an earlier client left: whether it is at its end, and whether this one may go on with it. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout.progress import Phase, Progress, unfinished
from nearsocket.model.text import one_line

#: How moments are written.
FORMAT = "%Y-%m-%dT%H:%M:%SZ"

if TYPE_CHECKING:
    from nearsocket.control.rollout.host import Course
    from nearsocket.control.rollout.look import Looked
    from nearsocket.control.rollout.run import Manner


def to_resume(left: Mapping[str, Progress | None], wanted: Mapping[str, str], job: str, manner: Manner) -> Progress | None:
    """The rollout to go on with; None where a new one begins. `left`: what each host has, in order; `wanted`: what it is to come
    to now. Raises NearsocketError where one was left and nobody says what to do, and where what is wanted is not what it was.
    """
    found = unfinished(left)
    if found is None or manner.anew or manner.check:
        if manner.resume and found is None:
            raise NearsocketError("expected a rollout to resume, found none on these hosts", "leave --resume out to begin one")
        return None
    if not manner.resume:
        raise NearsocketError(
            f"expected no rollout that is not at its end, found {_told(found, left)}",
            "--resume goes on with it (the same inventory, any folder, any user), --anew begins anew",
        )
    if found.job != job:
        raise NearsocketError(
            f"expected to resume a rollout of {job!r}, found {_told(found, left)}", f"resume {found.job}, or --anew"
        )
    for host, wish in wanted.items():
        if host not in found.wanted:
            raise NearsocketError(
                f"expected the hosts that rollout {found.id} began with, found {one_line(host, 80)} beside them",
                "--limit to the others, or --anew",
            )
        if found.wanted[host] != wish:
            raise NearsocketError(
                f"expected the inventory that rollout {found.id} began with ({one_line(found.wanted[host], 30)} for "
                f"{one_line(host, 80)}), found another ({one_line(wish, 30)})",
                "resume with that one, or begin anew with this one: --anew",
            )
    return found


def beginning(now: str, left: Mapping[str, Progress | None]) -> str:
    """When a new rollout began (ISO 8601, UTC): later than all that were left, whatever the clocks of those who began them said."""
    newest = max((one.started_at for one in left.values() if one), default="")
    if now > newest:
        return now
    with contextlib.suppress(ValueError, OverflowError):  # a host may say anything
        after = datetime.strptime(newest, FORMAT).replace(tzinfo=UTC) + timedelta(seconds=1)
        return after.strftime(FORMAT)
    return now


def _told(found: Progress, left: Mapping[str, Progress | None]) -> str:
    """Which one it is, by whom, since when, and how far it is."""
    phases = {host: (one.phase.value if (one := left.get(host)) and one.id == found.id else "not begun") for host in found.wanted}
    far = ", ".join(f"{one_line(host, 60)} {phase}" for host, phase in list(phases.items())[:8]) + (
        ", ..." if len(phases) > 8 else ""
    )
    return one_line(f"{found.job} {found.id} by {found.by} since {found.started_at} ({far})", 600)


def is_done(looked: Looked, course: Course) -> bool:
    """Whether the rollout proved that host already, and it is as it was then."""
    left, ready = looked.left, looked.ready
    here = left is not None and left.id == course.id and left.phase is Phase.VERIFIED
    return bool(here and ready and not ready.pending and ready.wanted == course.wanted.get(looked.name))
