"""The job `site`: what `deploys/site.py` does to a host, replica by replica, each proven before the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from nearsocket.control import converge, snapshots, verify
from nearsocket.control.converge import Leave, Prepared
from nearsocket.control.firstlook import FirstLook
from nearsocket.control.rollout import record
from nearsocket.control.rollout.job import Done, Job, Judged, Place, Ready, Seen
from nearsocket.control.transport import TransportError
from nearsocket.control.verify import HostVerdicts
from nearsocket.model import networkfs, verdict
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Status
from nearsocket.model.generation import Record, ReplicaEntry
from nearsocket.model.host import Host
from nearsocket.model.order import Order, StopAt
from nearsocket.model.outcome import Action, Kind, Outcome
from nearsocket.model.rollout import proof
from nearsocket.model.rollout.inforce import InForce
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.rollout.report import Proof
from nearsocket.model.settings import Adopt
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import entries

_DID = {Action.RESTART: "restarted", Action.START: "started"}


@dataclass(frozen=True)
class Site(Job[Prepared]):
    """What the inventory says, made real. `made_by`: the record of the generations; `first`: how new hosts are audited before."""

    made_by: Record
    leave: Leave
    templates: Path
    first: FirstLook
    timeout_s: float = 60.0
    accept_unknown: bool = False
    name: str = "site"

    def survey(self, place: Place, wait_s: float) -> Seen:
        """The snapshot with what is installed and what an earlier rollout left."""
        snapshot = converge.survey(place.target, place.way, self.timeout_s, place.children, wait_s)
        return Seen(snapshot, record.left(snapshot))

    def prepare(self, place: Place, seen: Seen, ahead: bool) -> Ready[Prepared]:
        """Plan and render; `ahead`: the host decides dry what it would do, and whether it would refuse."""
        target = place.target
        prepared = converge.prepare(target, seen.snapshot, self.made_by, self.leave, self.templates, first=self.first)
        host = snapshots.parsed(seen.snapshot, target.near)
        manifest, installed = prepared.generation.manifest, prepared.installed
        waiting = _waiting(prepared)
        ready = Ready(
            wanted=manifest.digest,
            current=str(installed.number) if installed.number is not None else None,
            pending=prepared.order is not None,
            work=prepared,
            digest=installed.digest,
            fingerprint=manifest.fingerprint,
            replicas=tuple(replica.name for replica in manifest.replicas if replica.name not in waiting),
            before=last_verdicts(host),
            loads=networkfs.sources(host.mounts, (replica.model for replica in manifest.replicas)),
        )
        return self._foreseen(place, ready) if ahead and prepared.order else ready

    def _foreseen(self, place: Place, ready: Ready[Prepared]) -> Ready[Prepared]:
        """With what the host says it would change. Raises NearsocketError where it would refuse."""
        said = converge.apply(place.target, place.way, self._order(ready.work), dry=True, children=place.children)
        if said.error:
            raise NearsocketError(said.error, said.hint)
        if said.frozen and not self.leave.override_freeze:
            raise NearsocketError(
                f"expected a host that may be changed, found it {said.frozen}", 'say why not: --override-freeze "..."'
            )
        return dataclasses.replace(ready, changes=tuple(map(str, said.changes)), notes=said.notes, pending=bool(said.changes))

    def _order(self, prepared: Prepared, progress: Progress | None = None) -> Order:
        """The order, for the host as it was read and no other: a deploy in between would be built upon unseen."""
        assert prepared.order is not None
        stop_at = StopAt.FAILURE if self.accept_unknown else StopAt.UNKNOWN
        seen = InForce(prepared.installed.number, prepared.installed.digest)
        return dataclasses.replace(prepared.order, one_by_one=stop_at, rollout=progress, surveyed=seen)

    def carry_out(self, place: Place, ready: Ready[Prepared], progress: Progress) -> Done:
        """The one apply, which writes the progress down."""
        return self._applied(place, self._order(ready.work, progress), ready.work.generation.manifest.replicas)

    def roll_back(self, place: Place, ready: Ready[Prepared], progress: Progress) -> Done:
        """The same by the generation that was in force."""
        order = converge.with_leave(Order(number=int(progress.previous or 0)), dataclasses.replace(self.leave, removals=True))
        # Going back has to come to its end even where a replica is not proven; the proof is asked for behind it.
        back = dataclasses.replace(order, one_by_one=StopAt.NOTHING, rollout=progress)
        return self._applied(place, back, ready.work.generation.manifest.replicas)

    def _applied(self, place: Place, order: Order, replicas: tuple[ReplicaEntry, ...]) -> Done:
        try:
            outcome = converge.apply(place.target, place.way, order, children=place.children)
        except TransportError as error:
            hint = f"{error.hint}; the apply there ends by itself: --resume goes on with what it came to"
            return Done(None, error=error.message, hint=hint, lost=True)
        return done(outcome, {replica.unit: replica.name for replica in replicas})

    def verify(self, place: Place, ready: Ready[Prepared]) -> Judged:
        """What runs now, judged as its starts were."""
        found = verify.one(place.target, place.way, self.timeout_s, None, place.children)
        return judged(found, ready.replicas, _waiting(ready.work), self.accept_unknown)


def judged(found: HostVerdicts, replicas: Sequence[str], waiting: Set[str], accept_unknown: bool) -> Judged:
    """A host's verdicts as a rollout takes them. `waiting`: replicas of which there is nothing to prove yet. Pure."""
    proofs = {one.replica: proof.brief(one) for one in found.verdicts}
    proofs |= {one.replica: Proof(one_line(one.reason, 300), Status.UNKNOWN) for one in found.silent}
    if found.findings:  # the host itself could not be read
        return Judged(proofs, "; ".join(proof.told(one) for one in found.findings), lost=True)
    problems = [
        f"replica {one.replica}: no proof, {one_line(one.reason, 200)}" for one in found.silent if one.replica not in waiting
    ]
    problems += [said for one in found.verdicts if (said := proof.problem(one, accept_unknown))]
    if not problems and found.reason and replicas:
        problems = [one_line(found.reason, 200)]
    return Judged(proofs, "; ".join(problems) or None)


def unproven(found: HostVerdicts, waiting: Set[str], accept_unknown: bool) -> frozenset[str]:
    """The replicas that `judged` has a problem with. Pure."""
    silent = {one.replica for one in found.silent} - waiting
    return frozenset(silent | {one.replica for one in found.verdicts if proof.problem(one, accept_unknown)})


def done(outcome: Outcome, units: Mapping[str, str]) -> Done:
    """An apply's outcome as a rollout tells it. `units`: unit to replica. Pure."""
    worked = [change for change in outcome.changes if change.kind is Kind.UNIT and change.action in _DID and change.name in units]
    took = {units[name]: seconds for name, seconds in _units(outcome).items() if name in units}
    # One that was not come to is in the changes too: only what has a time was really done, where something went wrong.
    did = {units[one.name]: _DID[one.action] for one in worked if outcome.error is None or units[one.name] in took}
    touched = outcome.wrote or (outcome.error is None and bool(outcome.changes))
    now = str(outcome.number) if outcome.number is not None else None
    return Done(
        now, tuple(map(str, outcome.changes)), outcome.notes, did, took, outcome.error, outcome.hint, touched, moved=outcome.moved
    )


def _waiting(prepared: Prepared) -> set[str]:
    """Replicas that start when the engine that they take over from stops: there is nothing to prove yet."""
    return {one.replica for one in prepared.handovers if one.how is Adopt.NEXT_RESTART}


def _units(outcome: Outcome) -> dict[str, float]:
    """Seconds of each unit that came up."""
    return {step.removeprefix("unit "): took for step, took in outcome.timings.items() if step.startswith("unit ")}


def last_verdicts(host: Host) -> dict[str, Proof]:
    """What each replica's last proof said, as far as the host kept it."""
    found = {}
    for entry in entries(host, "verdicts"):
        try:
            found[str(entry["replica"])] = proof.brief(verdict.from_value(entry["verdict"]))
        except (KeyError, TypeError, NearsocketError):
            continue
    return found
