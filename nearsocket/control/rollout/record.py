"""A host's progress in a rollout, read from its survey and written by one short exec."""

from __future__ import annotations

from nearsocket.control import audit, program
from nearsocket.control.rollout.job import Place
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout import progress
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.snapshot import Snapshot, SourceStatus

#: The source that a survey adds to a snapshot.
SOURCE = "rollout"
#: Writing one small file, on a slow host.
_MARK_S = 60.0


def left(snapshot: Snapshot) -> Progress | None:
    """What an earlier rollout left on the host; None where none did. Raises NearsocketError where that cannot be known."""
    source = snapshot.source(SOURCE)
    if source.ok:
        return progress.from_value(source.data)
    if source.status is SourceStatus.ABSENT and SOURCE in snapshot.sources:
        return None
    raise NearsocketError(
        f"expected to read {progress.FILE}, found: {source.reason}",
        "look at that file; deploys/remove.py or a person may remove it",
    )


def mark(place: Place, at: Progress, wait_s: float = 30.0) -> None:
    """Write it on the host, once no apply is at work there or `wait_s` is over. Raises NearsocketError where another rollout
    has taken the host over, TransportError."""
    target = place.target
    sent = program.payload(["rollout-mark", "--lock-wait", f"{wait_s:g}"], at.to_json().encode())
    place.way.run(audit.command(target), audit.password_line(target.sudo) + sent, wait_s + _MARK_S, place.children)
