"""What is known of one start of one replica, `nearsocket.verdict/1`: near or far, by force or by luck, with the findings. Pure."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from nearsocket.model import findingvalue
from nearsocket.model.errors import NearsocketError
from nearsocket.model.exitcode import worst_status
from nearsocket.model.finding import Finding, Status
from nearsocket.model.places import SCHEMA
from nearsocket.model.settings import OnFar
from nearsocket.model.text import one_line

PLACEMENT, ENFORCED, RANKS = "nccl.buffer-placement", "nccl.placement-enforced", "engine.rank-count"


class Word(str, enum.Enum):
    """Where the start's buffers lie. FAR is proven, over 1 % of a file's bytes; anything less than proof is UNKNOWN."""

    NEAR = "near"
    FAR = "far"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"


#: What the placement's status says of a start, for the proof and the lottery; every other status is unknown.
WORDS: Mapping[Status, Word] = {
    Status.PASS: Word.NEAR,
    Status.WARN: Word.NEAR,  # less than 1 % of a file is far: not worth a restart
    Status.FAIL: Word.FAR,
    Status.NOT_APPLICABLE: Word.NOT_APPLICABLE,
}


class Held(str, enum.Enum):
    """What keeps them there."""

    FORCE = "force"
    LUCK = "luck"
    UNKNOWN = "unknown"


class Trigger(str, enum.Enum):
    """Who asked: the unit's start, the timer, a person."""

    START = "start"
    WATCH = "watch"
    HAND = "hand"


class Action(str, enum.Enum):
    """What a policy does about a far start."""

    NONE = "none"
    FAIL = "fail"
    RESTART = "restart"


@dataclass(frozen=True)
class Verdict:
    """One judgement. `start` is the name of the start's folder, `started_at` its moment; times are ISO 8601 in UTC.

    `confirmed_at`: when the watch last saw that nothing had changed since. `by_node`: bytes of ring buffers. `basis`: what the
    processes looked like, for the watch to compare (onhost/verify/basis.py); JSON's own values.
    """

    replica: str
    unit: str
    start: str
    started_at: str
    judged_at: str
    trigger: Trigger
    policy: OnFar
    word: Word
    held: Held
    status: Status
    summary: str
    ranks_planned: int
    ranks_found: int
    by_node: Mapping[str, int]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    action: Action = Action.NONE
    reason: str = ""
    confirmed_at: Optional[str] = None
    boot_id: Optional[str] = None
    took_s: float = 0.0
    metrics: str = ""
    basis: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The verdict in one line, for the journal and `systemctl status`."""
        by = {Held.FORCE: " by force", Held.LUCK: " by luck"}.get(self.held, "") if self.word is Word.NEAR else ""
        ranks = f"; ranks {self.ranks_found} of {self.ranks_planned}" if self.ranks_found != self.ranks_planned else ""
        does = f"; {self.reason}" if self.reason else ""
        return one_line(f"{self.word.value}{by}: {self.summary.partition(': ')[2] or self.summary}{ranks}{does}", 600)

    def value(self) -> dict[str, Any]:
        """JSON's own values, schema first."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        enums = {name: part.value for name, part in plain.items() if isinstance(part, enum.Enum)}
        findings = [findingvalue.value(one) for one in self.findings]
        lists = {"findings": findings, "notes": list(self.notes), "by_node": dict(self.by_node), "basis": dict(self.basis)}
        return {"schema": SCHEMA, **plain, **enums, **lists}

    def to_json(self) -> str:
        """JSON text of printable ASCII, one line feed at its end."""
        return json.dumps(self.value(), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def judged(findings: Iterable[Finding]) -> tuple[Word, Held, Status, str]:
    """Word, holder, worst status and summary of a start by its findings; the summary is the placement's."""
    by_id = {finding.id: finding for finding in findings}
    placement, enforced = by_id.get(PLACEMENT), by_id.get(ENFORCED)
    word = WORDS.get(placement.status, Word.UNKNOWN) if placement else Word.UNKNOWN
    holders = {Status.PASS: Held.FORCE, Status.WARN: Held.LUCK, Status.FAIL: Held.LUCK}
    held = holders.get(enforced.status, Held.UNKNOWN) if enforced else Held.UNKNOWN
    summary = placement.summary if placement else "nothing was judged"
    return word, held, worst_status(finding.status for finding in by_id.values()), summary


def with_action(verdict: Verdict, action: Action, reason: str) -> Verdict:
    """The verdict with what its policy does."""
    return replace(verdict, action=action, reason=reason)


def from_value(given: Any) -> Verdict:
    """The verdict of `value`. Raises NearsocketError, one line, for anything else."""
    try:
        entry = dict(given)
        if entry.pop("schema") != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found another schema")
        kinds = {"trigger": Trigger, "policy": OnFar, "word": Word, "held": Held, "status": Status, "action": Action}
        entry.update({name: kind(entry[name]) for name, kind in kinds.items()})
        entry["findings"] = tuple(findingvalue.from_value(one) for one in entry["findings"])
        entry["notes"] = tuple(str(note) for note in entry["notes"])
        entry["by_node"] = {str(node): int(held) for node, held in entry["by_node"].items()}
        verdict = Verdict(**entry)
        for name in ("replica", "unit", "start", "started_at", "judged_at", "summary", "reason", "metrics"):
            if not isinstance(getattr(verdict, name), str):
                raise TypeError(f"{name}: expected a text")
        return verdict
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}") from None


def readable(given: Any) -> Optional[Verdict]:
    """The verdict of that value; None where it is none."""
    try:
        return from_value(given)
    except NearsocketError:
        return None


def from_json(text: str) -> Verdict:
    """The verdict that `to_json` wrote. Raises NearsocketError, one line, for anything else."""
    try:
        return from_value(json.loads(text))
    except ValueError:
        raise NearsocketError(f"expected {SCHEMA}, found other text") from None
