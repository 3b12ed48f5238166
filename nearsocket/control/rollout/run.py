"""A rollout: look at every host, then batch after batch in order; the first failure stops what comes after."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nearsocket.control import workers
from nearsocket.control.rollout import beating, beside, earlier, record, thisrun
from nearsocket.control.rollout.beside import Beside
from nearsocket.control.rollout.came import Came, known, report, with_look
from nearsocket.control.rollout.connect import lines
from nearsocket.control.rollout.host import Course, turn
from nearsocket.control.rollout.job import Job, Place
from nearsocket.control.rollout.loads import Loads
from nearsocket.control.rollout.look import Looked, look
from nearsocket.control.rollout.order import batches
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import EXIT_FAILURES, NearsocketError, UsageError
from nearsocket.model.rollout.beat import Beat
from nearsocket.model.rollout.plan import Reviewed
from nearsocket.model.rollout.progress import Phase
from nearsocket.model.rollout.report import WRONG, End, HostReport, RolloutReport

#: How long a resumed rollout waits for an apply that its dead client left at work: a model's load and more.
RESUME_WAIT_S = 3600.0


class Unreachable(enum.StrEnum):
    """What an unreachable host does to the others: nothing, or nothing is begun."""

    SKIP = "skip"
    STOP = "stop"


@dataclass(frozen=True)
class Manner:
    """How to go. `max_unavailable`: hosts at a time behind the canary; `max_loads`: models that are loaded at a time from one
    network file system, 0 for no limit. `wait_s`: for another operator's apply. `resume` and `anew`: what becomes of a rollout that
    is not at its end; `take_over`: also where a client shows itself at work on it. `reviewed`: the plan that is carried out, and
    nothing else."""

    by: str
    max_unavailable: int = 1
    max_loads: int = 0
    unreachable: Unreachable = Unreachable.STOP
    parallel: int = 16
    wait_s: float = 60.0
    check: bool = False
    resume: bool = False
    anew: bool = False
    take_over: bool = False
    reviewed: Reviewed | None = None


#: Phases that take as long as models load, as a person hears of them.
_LONG = {"apply": "changing it, one replica after another", "roll back": "going back to what was in force"}
Tell = Callable[[HostReport], None]
Say = Callable[[str], None]


def rollout(
    job: Job[Any],
    targets: Sequence[Target],
    manner: Manner,
    came: Came,
    tell: Tell = lambda _host: None,
    say: Say = lambda _line: None,
) -> RolloutReport:
    """Carry the job over these hosts in their order; `tell` hears of each host as its turn ends, `say` of what takes long,
    `came` keeps all along.

    Raises NearsocketError where an earlier rollout is not at its end, what is to be resumed is another one, or another client is at
    work on it; UsageError where there is nobody to go to. An interrupt ends every child before it is passed on; what was begun on a
    host ends by itself.
    """
    if not targets:
        raise UsageError("expected hosts, found an empty selection")
    children = Children()
    try:
        _look(job, targets, manner, came, children, say)
        course = _course(job, came, manner)
        stopped = _before(came, manner, course)
        if not manner.check and not stopped:
            _go(job, targets, manner, course, came, tell, say, children)
    except BaseException:
        children.end_all()
        raise
    return report(job.name, targets, manner, came, EXIT_FAILURES if stopped else None)


def _look(job: Job[Any], targets: Sequence[Target], manner: Manner, came: Came, children: Children, say: Say) -> None:
    """Look at every host; who takes an earlier client's rollout up waits for that one's last sign of life first."""
    asks = (manner.resume or manner.anew) and not manner.check
    wait_s = RESUME_WAIT_S if manner.resume else manner.wait_s
    with lines(targets) as ways:
        others = Beside([Place(target, ways[target.name], children) for target in targets], manner.parallel, say)
        say(f"looking at {len(targets)} host{'' if len(targets) == 1 else 's'}; nothing is changed meanwhile")
        while True:
            if asks and not manner.take_over:
                others.wait()
            came.looked = look(job, targets, ways, wait_s, manner.parallel, children)
            found = others.at_work() if asks else {}  # also where an apply was waited for, or a reboot
            if manner.take_over or not found:
                came.taken = {name: beside.taken_over(seen) for name, seen in found.items()}
                return


def _course(job: Job[Any], came: Came, manner: Manner) -> Course:
    """The rollout that this is: a new one, or the one that is resumed. Raises NearsocketError where neither may be."""
    wanted = {name: one.ready.wanted for name, one in came.looked.items() if one.ready}
    there = {name: one.left for name, one in came.looked.items()}
    client = uuid.uuid4().hex[:12]
    left = earlier.to_resume(there, wanted, job.name, manner)
    if left is not None:
        came.id, came.started_at = left.id, left.started_at
        return Course(left.id, left.job, left.by, left.started_at, left.wanted, RESUME_WAIT_S, client, manner.reviewed, there)
    came.started_at = earlier.beginning(came.started_at, there)
    id = uuid.uuid4().hex[:12]
    return Course(id, job.name, manner.by, came.started_at, wanted, manner.wait_s, client, manner.reviewed, there)


def _before(came: Came, manner: Manner, course: Course) -> bool:
    """Reports of hosts that are decided already; whether nothing may be begun for one of them."""
    stopped = False
    for name, looked in came.looked.items():
        refused = manner.reviewed.refusal(name, looked.ready) if manner.reviewed and looked.ready else None
        if looked.unreachable and manner.unreachable is Unreachable.SKIP:
            came.reports[name] = HostReport(name, End.SKIPPED, reason=looked.reason, hint=looked.hint)
        elif looked.ready is None:
            ways_on = (looked.hint, "--unreachable skip goes on without it" if looked.unreachable else None)
            hint = "; ".join(filter(None, ways_on)) or None
            came.reports[name] = dataclasses.replace(known(looked), hint=hint, notes=("nothing was changed on any host",))
            stopped = True
        elif refused is not None:
            came.reports[name] = dataclasses.replace(known(looked), end=End.FAILED, reason=refused, hint="review a new plan")
            stopped = True
        elif earlier.is_done(looked, course):
            came.reports[name] = dataclasses.replace(known(looked), end=End.EARLIER)
        elif manner.check:
            came.reports[name] = known(looked)
    return stopped


def _go(
    job: Job[Any], targets: Sequence[Target], manner: Manner, course: Course, came: Came, tell: Tell, say: Say, children: Children
) -> None:
    left = [target for target in targets if target.name not in came.reports]
    came.id = course.id if any(_to_do(came.looked[target.name]) for target in left) else came.id
    idle = next((at for at, target in enumerate(left) if _to_do(came.looked[target.name])), len(left))
    loading = Loads(manner.max_loads).loading
    since = datetime.now(UTC).strftime(earlier.FORMAT)
    sign = Beat(course.id, course.job, course.client, manner.by, since, run=thisrun.mine()) if came.id is not None else None
    for number, batch in enumerate(batches(left, manner.max_unavailable, idle), 1):
        with lines(batch) as ways:
            for found in _batch(job, [Place(t, ways[t.name], children) for t in batch], course, number, loading, came, sign, say):
                tell(found)
        if any(came.reports[target.name].end in WRONG for target in batch):
            return
    _close(targets, course, came, children, manner)


def _to_do(looked: Looked) -> bool:
    """Whether anything is changed there, or something that a rollout left is still to be proven."""
    pending = looked.ready is not None and looked.ready.pending
    return pending or (looked.left is not None and looked.left.phase is not Phase.VERIFIED)


def _batch(
    job: Job[Any], places: Sequence[Place], course: Course, number: int, loading: Any, came: Came, sign: Beat | None, say: Say
) -> Iterator[HostReport]:
    def act(at: int) -> HostReport:
        name = places[at].target.name

        def stage(phase: str) -> None:
            came.stages[name] = phase
            if phase in _LONG:
                say(f"{name}: {_LONG[phase]}")

        left = came.looked[name].left
        shown = beating.shown(places[at], dataclasses.replace(sign, over=left.key if left else None)) if sign else None
        with shown or contextlib.nullcontext():
            return turn(job, places[at], course, number, loading, stage)

    with closing(workers.each(len(places), act, len(places))) as answers:
        for _, found in answers:
            if places[0].children.closed:
                return  # an interrupt: what it looks like now is not what it comes to
            came.reports[found.name] = with_look(found, came.looked[found.name])
            yield came.reports[found.name]


def _close(targets: Sequence[Target], course: Course, came: Came, children: Children, manner: Manner) -> None:
    """Say on the hosts that the whole rollout ended well. Best effort: one host that says it is enough."""
    good = (End.VERIFIED, End.EARLIER, End.CURRENT)
    if came.id is None or any(name not in came.reports or came.reports[name].end not in good for name in course.wanted):
        return
    done = [target for target in targets if came.reports[target.name].end in (End.VERIFIED, End.EARLIER)]
    with lines(done) as ways:

        def act(at: int) -> None:
            target = done[at]
            progress = course.begun(target.name, came.reports[target.name].before).at(Phase.VERIFIED)
            with contextlib.suppress(NearsocketError):
                record.mark(Place(target, ways[target.name], children), dataclasses.replace(progress, closed=True))

        with closing(workers.each(len(done), act, manner.parallel)) as answers:
            for _ in answers:
                pass
