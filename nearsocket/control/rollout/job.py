"""What a rollout can carry over a fleet: a job has the same five phases on every host, and `host` calls them in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from nearsocket.control.target import Target
from nearsocket.control.transport import Transport
from nearsocket.control.transport.process import Children
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.rollout.report import Proof
from nearsocket.model.snapshot import Snapshot

Work = TypeVar("Work")


@dataclass(frozen=True)
class Place:
    """One host while it is looked at or worked on: who it is, its open connection, and the children that an interrupt ends."""

    target: Target
    way: Transport
    children: Children


@dataclass(frozen=True)
class Seen:
    """A host as it was read: its snapshot (with the survey's sources), and what an earlier rollout left there."""

    snapshot: Snapshot
    left: Progress | None = None


@dataclass(frozen=True)
class Ready(Generic[Work]):
    """What is to be done on one host. `wanted`: what it is to come to, one text: equal ones are the same wish. `current`: what
    is in force now (a generation's number, a version), None where nothing is; `digest`: that, in the words of `wanted`.
    `pending`: whether anything is to be changed; `changes`: what, a line each. `replicas`: those that have to be proven. `before`:
    their last verdicts. `loads`: the network file systems that engines load models from. `work`: the job's own.
    """

    wanted: str
    current: str | None
    pending: bool
    work: Work
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str | None = None
    fingerprint: str = ""
    replicas: tuple[str, ...] = ()
    before: Mapping[str, Proof] = field(default_factory=dict)
    loads: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Done:
    """What carrying out or going back came to. `now`: what is in force after it. `did`: replica to `restarted` or `started`;
    `took_s`: replica to seconds. `error`: why it failed; `touched`: something was changed before. `lost`: the connection went, the
    host goes on by itself, and nobody here knows how far. `moved`: refused, for somebody changed the host since it was read.
    `stays`: what was changed is proven by itself, and this error is no reason to take it back.
    """

    now: str | None
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    did: Mapping[str, str] = field(default_factory=dict)
    took_s: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    hint: str | None = None
    touched: bool = True
    lost: bool = False
    moved: bool = False
    stays: bool = False


@dataclass(frozen=True)
class Judged:
    """What the replicas' proofs say, by name, and why that is not good enough; None where it is. `lost`: the host gave no answer,
    so nothing is known of what runs there, good or bad; `problem` says why. `stays`: as in Done.
    `notes`: what else there is to say."""

    proofs: Mapping[str, Proof] = field(default_factory=dict)
    problem: str | None = None
    lost: bool = False
    notes: tuple[str, ...] = ()
    stays: bool = False


class Job(Protocol[Work]):
    """One kind of change. Every phase may raise NearsocketError, one line about that host.

    `carry_out` and `roll_back` see to it that the host's progress is written where they change something, in the phase that they
    are given, before the first change and after the last (`record.mark`, or the apply's own order does); the rest is `host`'s.
    """

    name: str

    def survey(self, place: Place, wait_s: float) -> Seen:
        """Read the host, once nobody works on it any more or `wait_s` is over. Changes nothing."""

    def prepare(self, place: Place, seen: Seen, ahead: bool) -> Ready[Work]:
        """What there is to do on it. Changes nothing. `ahead`: nothing is changed anywhere yet; what must stop the fleet is to be
        found now."""

    def carry_out(self, place: Place, ready: Ready[Work], progress: Progress) -> Done:
        """Do it: the drain hook, idle, stop, relief, probe, start, health, proof and undrain hook of one replica after another."""

    def verify(self, place: Place, ready: Ready[Work]) -> Judged:
        """Prove what runs now."""

    def roll_back(self, place: Place, ready: Ready[Work], progress: Progress) -> Done:
        """Go back to `progress.previous`."""
