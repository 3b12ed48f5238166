"""The look at every host before anything is changed on any: who answers, what would be done, which rollout was left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from nearsocket.control import workers
from nearsocket.control.rollout.job import Job, Place, Ready, Seen
from nearsocket.control.target import Target
from nearsocket.control.transport import Transport, TransportError, Trouble
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.rollout.plan import Entry
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.text import fault

#: Troubles of a host that may be off. One that refuses the login, or on which somebody is at work, is there and has to be seen to.
_UNREACHABLE = (Trouble.RESOLVE, Trouble.UNREACHABLE, Trouble.REFUSED, Trouble.TIMEOUT)


@dataclass(frozen=True)
class Looked:
    """One host. `ready` None: it could not be read (`unreachable`), or it is refused; `reason` and `hint` say why."""

    name: str
    ready: Ready[Any] | None = None
    left: Progress | None = None
    reason: str | None = None
    hint: str | None = None
    unreachable: bool = False


def look(
    job: Job[Any],
    targets: Sequence[Target],
    ways: Mapping[str, Transport],
    wait_s: float,
    parallel: int,
    children: Children,
) -> dict[str, Looked]:
    """Every host by its name, in the targets' order; `wait_s`: how long to wait for who works on a host."""
    found: dict[int, Looked] = {}

    def act(at: int) -> Looked:
        return _one(job, Place(targets[at], ways[targets[at].name], children), wait_s)

    with closing(workers.each(len(targets), act, parallel)) as answers:
        found.update(answers)
    return {targets[at].name: found[at] for at in range(len(targets))}


def _one(job: Job[Any], place: Place, wait_s: float) -> Looked:
    name, seen = place.target.name, None
    try:
        seen = job.survey(place, wait_s)
        return Looked(name, job.prepare(place, seen, ahead=True), seen.left)
    except UsageError:
        raise
    except TransportError as error:
        return Looked(name, None, _left(seen), error.message, error.hint, seen is None and error.trouble in _UNREACHABLE)
    except NearsocketError as error:
        return Looked(name, None, _left(seen), error.message, error.hint)
    except Exception as error:  # one host must not take the others' results with it
        return Looked(name, None, _left(seen), f"expected to plan for this host, found: {fault(error)}")


def _left(seen: Seen | None) -> Progress | None:
    return seen.left if seen else None


def planned(looked: Looked) -> Entry:
    """The host as a plan for review has it; only where it is `ready`."""
    ready = looked.ready
    assert ready is not None
    return Entry(looked.name, ready.current, ready.digest, ready.wanted, ready.fingerprint, ready.changes)
