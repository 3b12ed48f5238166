"""One host's turn: read it, do the work, prove it; where that goes wrong, back to what was, proven again, and said."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearsocket.control.rollout import record
from nearsocket.control.rollout.job import Done, Job, Judged, Place, Ready
from nearsocket.control.transport import TransportError
from nearsocket.model.errors import NearsocketError
from nearsocket.model.rollout.plan import Reviewed
from nearsocket.model.rollout.progress import Phase, Progress
from nearsocket.model.rollout.report import End, HostReport, ReplicaReport
from nearsocket.model.text import fault, one_line

#: Phases after which what is in force may be this rollout's work and not what was before it.
_UNDERWAY = (Phase.BEGUN, Phase.APPLIED, Phase.FAILED)
#: How often a host is asked what runs there, where an answer is lost on the way.
_ASKED = 3
Loading = Callable[[frozenset[str]], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True)
class Course:
    """The rollout as every host's turn needs it. `wait_s`: how long to wait for who else works on a host. `client`: this run of it.
    `reviewed`: the plan that is carried out, and nothing else. `found`: what the look found each host in, by name; None where no
    look was before the turns."""

    id: str
    job: str
    by: str
    started_at: str
    wanted: Mapping[str, str]
    wait_s: float
    client: str = ""
    reviewed: Reviewed | None = None
    found: Mapping[str, Progress | None] | None = None

    def begun(self, host: str, previous: str | None, now: Progress | None = None) -> Progress:
        """The progress of a host whose work begins. `now`: what it is in where there was no look. Raises NearsocketError where
        somebody else began there since the look."""
        before = now if self.found is None else self.found.get(host)
        over = before.key if before else None
        made = Progress(self.id, self.job, self.by, self.started_at, host, self.wanted, previous, client=self.client, over=over)
        made.refuse_taken(now)
        return made


@dataclass
class _Turn:
    """What is known of it so far."""

    report: HostReport
    stage: Callable[[str], None]
    took_s: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Do a phase; its time goes into the report."""
        self.stage(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self.took_s[name] = round(time.monotonic() - began, 2)

    def ended(self, end: End, **more: Any) -> HostReport:
        """The host's report."""
        return dataclasses.replace(self.report, end=end, took_s=dict(self.took_s), **more)


def turn(
    job: Job[Any], place: Place, course: Course, batch: int, loading: Loading, stage: Callable[[str], None] = lambda _phase: None
) -> HostReport:
    """The host's whole turn; every fault of the outside world is in the report. `stage` hears of each phase as it begins."""
    name = place.target.name
    mine = _Turn(HostReport(name, End.FAILED, batch, wanted=course.wanted.get(name)), stage)
    try:
        return _turn(job, place, course, mine, loading)
    except NearsocketError as error:
        return mine.ended(End.FAILED, reason=error.message, hint=error.hint)
    except Exception as error:  # what nobody foresaw in a host's answer
        return mine.ended(End.FAILED, reason=f"expected to work on this host, found: {fault(error)}")


def _turn(job: Job[Any], place: Place, course: Course, mine: _Turn, loading: Loading) -> HostReport:
    name = place.target.name
    with mine.phase("survey"):
        seen = job.survey(place, course.wait_s)
    with mine.phase("prepare"):
        ready = job.prepare(place, seen, ahead=False)
    previous = _previous(seen.left, course, ready)
    mine.report = _seen(mine.report, ready, previous)
    if ready.wanted != course.wanted[name]:
        raise NearsocketError(
            f"expected the host as it was when the rollout began, found that it would come to {one_line(ready.wanted, 80)} now",
            "look at what changed there (nearsocket plan), then begin anew: --anew",
        )
    refused = course.reviewed.refusal(name, ready) if course.reviewed else None
    if refused is not None:
        raise NearsocketError(f"{refused}; it changed since the rollout began", "review a new plan")
    progress = course.begun(name, previous, seen.left)
    left = seen.left is not None and (seen.left.id == course.id or seen.left.phase is not Phase.VERIFIED)
    done = None
    if ready.pending:
        with mine.phase("apply"), loading(ready.loads):
            done = job.carry_out(place, ready, progress)
        mine.report = _done(mine.report, done)
        if done.error is not None:
            return _failed(job, place, ready, progress, mine, done, done.error, done.hint, loading)
    with mine.phase("verify"):
        judged = _judged(job, place, ready)
    mine.report = _proven(mine.report, judged)
    if judged.lost and not place.children.closed:
        told = f"what runs there is not known, and nothing is taken back: {judged.problem}"
        return mine.ended(End.FAILED, reason=told, hint="look whether the host is up; --resume asks again and goes on")
    if judged.problem is not None:
        return _failed(job, place, ready, progress, mine, done, judged.problem, None, loading, judged.stays)
    if ready.pending or left:
        with mine.phase("mark"):
            _mark(place, progress.at(Phase.VERIFIED))
    return mine.ended(End.VERIFIED if ready.pending or left else End.CURRENT)


def _previous(left: Progress | None, course: Course, ready: Ready[Any]) -> str | None:
    """What there is to go back to: what was in force before the first rollout that did not come to its end there, this one or one
    that is begun anew. What that one left in force was never proven."""
    if left is not None and left.job == course.job and left.phase in _UNDERWAY:
        return left.previous
    return ready.current


def _mark(place: Place, progress: Progress) -> None:
    try:
        record.mark(place, progress)
    except NearsocketError as error:
        raise NearsocketError(
            f"expected to write on the host that it is {progress.phase.value}, found: {error.message}", error.hint
        ) from None


def _judged(job: Job[Any], place: Place, ready: Ready[Any]) -> Judged:
    """What runs there; asked again where an answer is lost on the way. A host whose proof cannot be had is not proven."""
    judged = _asked(job, place, ready)
    for _ in range(1, _ASKED):
        if not judged.lost or place.children.closed:
            break
        judged = _asked(job, place, ready)
    return judged


def _asked(job: Job[Any], place: Place, ready: Ready[Any]) -> Judged:
    try:
        return job.verify(place, ready)
    except NearsocketError as error:
        return Judged(problem=f"what runs could not be verified: {error.message}", lost=isinstance(error, TransportError))


def _failed(
    job: Job[Any],
    place: Place,
    ready: Ready[Any],
    progress: Progress,
    mine: _Turn,
    done: Done | None,
    reason: str,
    hint: str | None,
    loading: Loading,
    stays: bool = False,
) -> HostReport:
    """Something is wrong: take the host back where this rollout changed it, prove that, and say it all plainly."""
    if place.children.closed:  # nothing is wrong there: whoever works here was interrupted
        return mine.ended(End.INTERRUPTED, reason="given up by an interrupt")
    if done is not None and (done.lost or done.moved):
        told = f"{reason}; nothing was changed there" if done.moved else reason
        return mine.ended(End.FAILED, reason=told, hint=hint)
    if progress.previous == ready.current and not (done and done.touched):
        return mine.ended(End.FAILED, reason=f"{reason}; nothing was changed there", hint=hint)
    failed = progress.at(Phase.FAILED, reason)
    stays = stays or (done is not None and done.stays)
    if progress.previous is None or stays:
        with mine.phase("mark"):
            _note_down(place, failed)
        with mine.phase("verify"):  # what runs there is told, though nothing follows from it
            mine.report = _proven(mine.report, _judged(job, place, ready))
        none = "nothing was in force before, so there is nothing to go back to: it is left as it is"
        return mine.ended(End.FAILED, reason=reason if stays else f"{reason}; {none}", hint=hint)
    with mine.phase("roll back"), loading(ready.loads):
        back = _went_back(job, place, ready, failed)
    if back.error is not None:
        with mine.phase("mark"):
            _note_down(place, failed)
        told = f"{reason}; THE WAY BACK FAILED TOO: {back.error}"
        return mine.ended(End.FAILED, reason=told, hint=back.hint, after=back.now)
    notes = tuple(dict.fromkeys((*mine.report.notes, *back.notes)))
    mine.report = dataclasses.replace(mine.report, after=back.now, notes=notes)
    with mine.phase("verify again"):
        judged = _judged(job, place, ready)
    mine.report = _proven(mine.report, judged, back)
    with mine.phase("mark"):
        _note_down(place, progress.at(Phase.ROLLED_BACK if judged.problem is None else Phase.FAILED, reason))
    if judged.problem is not None:
        told = f"{reason}; it is back on {progress.previous}, and THAT IS NOT PROVEN EITHER: {judged.problem}"
        return mine.ended(End.FAILED, reason=told, hint="look at the replicas' journals on that host")
    return mine.ended(End.ROLLED_BACK, reason=reason)


def _went_back(job: Job[Any], place: Place, ready: Ready[Any], failed: Progress) -> Done:
    try:
        return job.roll_back(place, ready, failed)
    except NearsocketError as error:
        lost = isinstance(error, TransportError)
        return Done(None, error=error.message, hint=error.hint, lost=lost)


def _note_down(place: Place, progress: Progress) -> None:
    """What is written for whoever resumes; where it cannot be, the phase that stands there leads to the same."""
    with contextlib.suppress(NearsocketError):
        record.mark(place, progress)


def _seen(report: HostReport, ready: Ready[Any], previous: str | None) -> HostReport:
    replicas = tuple(ReplicaReport(name, before=ready.before.get(name)) for name in ready.replicas)
    return dataclasses.replace(report, before=previous, after=ready.current, notes=ready.notes, replicas=replicas)


def _done(report: HostReport, done: Done) -> HostReport:
    notes = tuple(dict.fromkeys((*report.notes, *done.notes)))
    after = report.after if done.lost else done.now
    return dataclasses.replace(report, after=after, changes=done.changes, notes=notes, replicas=_worked(report, done))


def _worked(report: HostReport, done: Done) -> tuple[ReplicaReport, ...]:
    known = {one.name: one for one in report.replicas}
    for name in (*done.did, *done.took_s):
        known.setdefault(name, ReplicaReport(name))
    return tuple(
        dataclasses.replace(one, did=done.did.get(name, one.did), took_s=done.took_s.get(name, one.took_s))
        for name, one in known.items()
    )


def _proven(report: HostReport, judged: Judged, back: Done | None = None) -> HostReport:
    replicas = {one.name: one for one in (_worked(report, back) if back else report.replicas)}
    for name, proof in judged.proofs.items():
        replicas[name] = dataclasses.replace(replicas.get(name, ReplicaReport(name)), after=proof)
    notes = tuple(dict.fromkeys((*report.notes, *judged.notes)))
    return dataclasses.replace(report, replicas=tuple(replicas.values()), notes=notes)
