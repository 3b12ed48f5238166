"""A finding: one check's verdict on one subject, with evidence and remedy."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional


class Status(str, enum.Enum):
    """The five things that a check can say; the value is the word in JSON."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"


#: Findings whose `unknown` decides the exit code (DESIGN, exit codes).
CORE_IDS = frozenset({"host.reachable", "nccl.buffer-placement", "nccl.cumem-in-force", "topology.gpu-node"})


def _must_be(value: object, kind: type, what: str) -> None:
    """A check of a user's own may give anything; what a renderer or an exit code would choke on ends here."""
    if not isinstance(value, kind):
        raise TypeError(f"{what}: expected {kind.__name__}, found {type(value).__name__}")


@dataclass(frozen=True)
class Evidence:
    """What a finding rests on: the source's name (a path, a command) and the text as read.

    Raises TypeError where one of them is no text.
    """

    source: str
    text: str

    def __post_init__(self) -> None:
        _must_be(self.source, str, "an evidence's source")
        _must_be(self.text, str, "an evidence's text")


@dataclass(frozen=True)
class Waived:
    """Why a finding is not counted; `expires` is an ISO date."""

    reason: str
    owner: str
    expires: str


@dataclass(frozen=True)
class Finding:
    """One verdict. `id` is stable (`concern.kebab-case`); the functions below leave it empty and the runner stamps it.

    `summary` is one line with the figure; `remedy` can be pasted and is None on a pass. Raises TypeError for a field of another
    type, and ValueError for a pass with a remedy, or without evidence that names its source and shows something.
    """

    id: str
    status: Status
    subject: str
    summary: str
    evidence: tuple[Evidence, ...] = ()
    remedy: Optional[str] = None
    waived: Optional[Waived] = None

    def __post_init__(self) -> None:
        for what, value in (("id", self.id), ("subject", self.subject), ("summary", self.summary)):
            _must_be(value, str, f"a finding's {what}")
        _must_be(self.status, Status, "a finding's status")
        _must_be(self.evidence, tuple, "a finding's evidence")
        for piece in self.evidence:
            _must_be(piece, Evidence, "a piece of evidence")
        if self.remedy is not None:
            _must_be(self.remedy, str, "a finding's remedy")
        if self.waived is not None:
            _must_be(self.waived, Waived, "a finding's waiver")
        if self.status is Status.PASS and not any(piece.source.strip() and piece.text.strip() for piece in self.evidence):
            raise ValueError(f"{self.id or 'a check'} passes {self.subject!r} without evidence; absence of evidence is unknown")
        if self.status is Status.PASS and self.remedy is not None:
            raise ValueError(f"{self.id or 'a check'} passes {self.subject!r} and yet offers a remedy")


def passed(subject: str, summary: str, evidence: Iterable[Evidence]) -> Finding:
    """The thing holds, and the evidence shows it (at least one piece)."""
    return Finding("", Status.PASS, subject, summary, tuple(evidence))


def warned(subject: str, summary: str, evidence: Iterable[Evidence], remedy: str) -> Finding:
    """The thing works today by luck or below its best."""
    return Finding("", Status.WARN, subject, summary, tuple(evidence), remedy)


def failed(subject: str, summary: str, evidence: Iterable[Evidence], remedy: str) -> Finding:
    """The thing is wrong and costs speed or service."""
    return Finding("", Status.FAIL, subject, summary, tuple(evidence), remedy)


def unknown(subject: str, summary: str, evidence: Iterable[Evidence] = (), remedy: Optional[str] = None) -> Finding:
    """The host did not show enough to judge; the remedy says how to find out."""
    return Finding("", Status.UNKNOWN, subject, summary, tuple(evidence), remedy)


def not_applicable(subject: str, summary: str, evidence: Iterable[Evidence] = ()) -> Finding:
    """The question does not arise here; the summary says why."""
    return Finding("", Status.NOT_APPLICABLE, subject, summary, tuple(evidence))
