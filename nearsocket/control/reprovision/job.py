"""The job `reprovision`: one host's driver upgraded, rebooted, proven, its replicas started one by one; or all of it taken back."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nearsocket.control import converge, snapshots, verify
from nearsocket.control.reprovision import ask, ends, measuring
from nearsocket.control.reprovision.ask import Busy, HostLost
from nearsocket.control.reprovision.steps import Failed, Steps
from nearsocket.control.rollout import record, site
from nearsocket.control.rollout.job import Done, Job, Judged, Place, Ready, Seen
from nearsocket.control.rollout.run import RESUME_WAIT_S
from nearsocket.control.target import Way
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.model import networkfs
from nearsocket.model.check import Check
from nearsocket.model.driver import transaction
from nearsocket.model.driver.orders import Action, Answer, Order, State
from nearsocket.model.driver.preflight import Grade
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.snapshot import Snapshot
from nearsocket.model.text import one_line

_AWAY = (Trouble.UNREACHABLE, Trouble.REFUSED, Trouble.TIMEOUT, Trouble.SSH)
_PAUSE_S = 2.0


@dataclass(frozen=True)
class Upgrade:
    """One host's: the host as it was read, what is left of an upgrade that was begun, and the version before."""

    before: Snapshot
    state: State | None
    frm: str | None
    replicas: tuple[str, ...]


def target_version(word: str | None) -> str:
    """The version that was asked for. Raises UsageError for anything else."""
    if word is None or not transaction.TARGET.match(word):
        raise UsageError(
            f"--driver: expected a driver's version such as 580.105.08, found {one_line(word, 60) if word else 'none'}"
        )
    return word


@dataclass(frozen=True)
class Reprovision(Job[Upgrade]):
    """To the driver `to`. `checks`: what the host is compared by, before against after."""

    to: str
    by: str
    checks: tuple[Check, ...]
    timeout_s: float = 60.0
    reboot_limit_s: float = 1200.0
    accept_unknown: bool = False
    disturb: bool = False
    override_freeze: str | None = None
    check: bool = False
    anew: bool = False
    name: str = "reprovision"
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def survey(self, place: Place, wait_s: float) -> Seen:
        """The snapshot, with what an earlier rollout left. A host that may be in the middle of its reboot is waited for."""
        if place.target.way is not Way.SSH:
            raise UsageError(f"{place.target.name}: expected a host over SSH, found this machine: it cannot outlive its own reboot")
        # Who resumes may come while the host is in its reboot, however long that was allowed to take.
        patient = wait_s >= min(self.reboot_limit_s, RESUME_WAIT_S)
        end = self.clock() + (self.reboot_limit_s if patient else 0.0)
        while True:
            try:
                snapshot = converge.survey(place.target, place.way, self.timeout_s, place.children, wait_s)
                return Seen(snapshot, record.left(snapshot))
            except TransportError as error:
                if error.trouble not in _AWAY or self.clock() >= end:
                    raise
                self.pause(_PAUSE_S)

    def prepare(self, place: Place, seen: Seen, ahead: bool) -> Ready[Upgrade]:
        """What is left to do; `ahead`: looked at, fetched and tried on the host, before anything is stopped anywhere."""
        now = self._step(place, Action.STATUS, "status")
        state = now.state if now.state and now.state.unfinished else None
        goal = transaction.upstream(self.to)
        if state is not None and state.to != self.to and not (self.anew and goal == transaction.upstream(state.frm)):
            raise NearsocketError(
                f"expected no other upgrade under way, found one to {state.to} by {state.by} ({state.phase.value})",
                f"finish it: --driver {state.to} --resume; or take it back: --driver {state.frm} --anew",
            )
        other = now.loaded != goal or now.installed not in (goal, None) or bool(now.split)
        pending = state is not None or other or bool(now.held)
        host = snapshots.parsed(seen.snapshot, place.target.near)
        served = place.target.settings.replicas if place.target.settings else ()
        work = Upgrade(seen.snapshot, state, state.frm if state else now.loaded, now.replicas)
        ready = Ready(
            self.to,
            now.loaded,
            pending,
            work,
            notes=now.notes,
            digest=now.loaded,
            fingerprint=_digest(state.words) if state else "",
            replicas=now.replicas,
            before=site.last_verdicts(host),
            loads=networkfs.sources(host.mounts, (replica.model for replica in served)),
        )
        if not pending or not ahead:
            return ready
        if state is not None:
            way = "go on with" if state.to == self.to else "take back"
            return dataclasses.replace(ready, changes=(f"{way} the upgrade to {state.to}, {state.phase.value}",))
        return self._tried(place, ready)

    def _tried(self, place: Place, ready: Ready[Upgrade]) -> Ready[Upgrade]:
        """Raises NearsocketError where something forbids to begin."""
        seen = self._step(place, Action.PREFLIGHT if self.check else Action.REHEARSE, "preflight")
        if seen.stops:
            first, more = seen.stops[0], len(seen.stops) - 1
            text = "; ".join(f"{look.check}: {look.text}" for look in seen.stops)
            hint = first.hint or "look at the host"
            raise NearsocketError(one_line(text, 600), f"{hint}" + (f" (and {more} more)" if more else ""))
        changes = [f"install {word}" for word in seen.words]
        changes += ["reboot", *(f"restart replica {name}" for name in ready.replicas)]
        notes = tuple(str(look) for look in seen.looks if look.grade is Grade.WARN)
        return dataclasses.replace(ready, changes=tuple(changes), notes=(*ready.notes, *notes), fingerprint=_digest(seen.words))

    def carry_out(self, place: Place, ready: Ready[Upgrade], progress: Progress) -> Done:
        """All steps, each journaled on the host; a replica starts once the driver is proven and as fast as it was."""
        record.mark(place, progress)
        state = ready.work.state
        if state is not None and state.to != self.to:
            return self._going(place, ready, progress, (Action.BACK,), forward=False)  # that is what was asked for
        if state is not None and state.back and not self.anew:
            return self._came_back(place, ready, progress, state)
        return self._going(place, ready, progress, (Action.PREPARE, Action.UPGRADE), forward=True)

    def _came_back(self, place: Place, ready: Ready[Upgrade], progress: Progress, state: State) -> Done:
        """A way back that an earlier client left, to its end: the next time goes forward."""
        done = self._going(place, ready, progress, (Action.BACK,), forward=False)
        if done.error:
            return (
                done if done.lost else dataclasses.replace(done, hint=f"{done.hint or 'mend that'}; --anew goes forward from there")
            )
        judged = self.verify(place, ready)
        said = f"it was on the way back to {state.frm}, and is there now"
        if judged.problem is not None:
            said = f"{said}, NOT PROVEN: {judged.problem}"
        notes = (*done.notes, *judged.notes)
        return Done(done.now, ready.changes, notes, error=said, hint="--resume tries the upgrade again", touched=False)

    def roll_back(self, place: Place, ready: Ready[Upgrade], progress: Progress) -> Done:
        """The packages before, a reboot, the same proofs, the replicas."""
        record.mark(place, progress)
        return self._going(place, ready, progress, (Action.BACK,), forward=False)

    def _going(self, place: Place, ready: Ready[Upgrade], progress: Progress, first: Sequence[Action], forward: bool) -> Done:
        id = ready.work.state.id if ready.work.state else progress.id
        notes: list[str] = []
        state = ready.work.state
        touched, now = state is not None, ready.current
        order = Order(Action.STATUS, id, self.by, self.to)
        reached = False
        try:
            for action in first:
                answer = self._step(place, action, id)
                touched, state = touched or answer.touched, answer.state or state
                notes += answer.notes
            note = ask.reboot(place, order, self.reboot_limit_s, self.clock, self.pause)
            notes += [note] if note else []
            proven = self._step(place, Action.AFTER, id)
            reached, now = True, proven.loaded
            notes += proven.notes
            measured: tuple[str, ...] = ()
            if forward and proven.state is not None and proven.state.started:
                notes.append("replicas were started before the client was gone: all-reduces were measured then, if at all")
                measured = proven.state.measured
            elif forward:
                found = measuring.compared(place, ready.work.before, ready.work.frm, self.timeout_s, self.disturb, self.pause)
                notes += found.notes
                measured = found.good
            unknown = self.accept_unknown or not forward
            started = self._steps(place, id).start(ready.replicas, forward, measured, unknown)
            notes += measuring.changes(place, ready.work.before, self.checks, self.timeout_s) if forward else []
        except HostLost as error:
            return Done(None, notes=tuple(notes), error=error.message, hint=error.hint, lost=True)
        except Busy as error:
            hint = f"{error.hint}; then --resume"
            return Done(now, notes=tuple(notes), error=error.message, hint=hint, lost=touched, touched=touched)
        except TransportError as error:
            hint = f"{error.hint}; the step there ends by itself: --resume goes on with what it came to"
            return Done(None, notes=tuple(notes), error=error.message, hint=hint, lost=True)
        except NearsocketError as error:
            serving = state is not None and not state.back and bool(state.started or state.measured)
            if forward and not reached and serving:
                return ends.serves(ready, now, self.to, error, notes)
            touched = touched or (isinstance(error, Failed) and error.touched)
            return Done(now, ready.changes, tuple(notes), error=error.message, hint=error.hint, touched=touched)
        return ends.up(ready, now, self.to, started, notes, forward)

    def _step(self, place: Place, action: Action, id: str) -> Answer:
        """One step. Raises Failed where the host says why not, Busy, TransportError."""
        return self._steps(place, id).take(action)

    def _steps(self, place: Place, id: str) -> Steps:
        freeze = place.target.freeze
        order = Order(Action.STATUS, id, self.by, self.to, self.disturb, freeze=freeze, override_freeze=self.override_freeze)
        return Steps(place, dataclasses.replace(order, forward=self.anew))

    def verify(self, place: Place, ready: Ready[Upgrade]) -> Judged:
        """What runs now, judged as its starts were; where all is well, what was kept for the way back goes.

        A replica that did not run before was left as it was: there is nothing to prove of it. That the host could not be tidied up
        behind good proofs is a note, and no reason to take a driver back.
        """
        found = verify.one(place.target, place.way, self.timeout_s, None, place.children)
        now, unknown = self._told(place)
        ran = now.ran if now is not None else None
        down = frozenset(ready.replicas) - frozenset(ready.replicas if ran is None else ran)
        judged = site.judged(found, ready.replicas, down, self.accept_unknown)
        if now is None and judged.problem is not None:  # which replicas were down before is not known either: asked again
            return dataclasses.replace(judged, problem=f"{judged.problem}; {unknown}", lost=True)
        if judged.problem is not None:
            wrong = site.unproven(found, down, self.accept_unknown)
            measured = now.state.measured if now is not None and now.state is not None and not now.state.back else ()
            if judged.lost or not wrong or not wrong <= set(measured):
                return judged
            return dataclasses.replace(judged, problem=ends.stays(judged.problem, self.to), stays=True)
        notes = [f"replica {name} did not run before: it was left as it was, unproven here" for name in sorted(down)]
        if now is None:
            notes.append(unknown)
        elif now.state is not None and now.state.unfinished:
            notes += self._finished(place, now.state.id)
        return dataclasses.replace(judged, notes=tuple(notes))

    def _told(self, place: Place) -> tuple[Answer | None, str]:
        """How far the host is; None and a note where it does not tell."""
        try:
            return self._step(place, Action.STATUS, "status"), ""
        except NearsocketError as error:
            return None, one_line(f"not closed on the host ({error.message}): run the same once more", 300)

    def _finished(self, place: Place, id: str) -> list[str]:
        """Notes of what could not be tidied up."""
        try:
            self._step(place, Action.FINISH, id)
        except NearsocketError as error:
            return [one_line(f"all is proven, and not closed on the host ({error.message}): run the same once more", 300)]
        return []


def _digest(words: Sequence[str]) -> str:
    """What a reviewed plan rests on: the transaction's own words; nothing where there are none."""
    return hashlib.sha256("\n".join(sorted(words)).encode()).hexdigest() if words else ""
