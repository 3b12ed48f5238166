"""How far a rollout is on one host, `nearsocket.rollout-state/1`: the file that lets any colleague go on with it. Pure."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.places import VAR
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.rollout-state/1"
#: Where it lies on a host; it goes with all else when the host is left.
FILE = f"{VAR}/rollout.json"
#: Far above what a fleet of thousands needs.
LARGEST_BYTES = 4 << 20


class Phase(str, enum.Enum):
    """How far the host is: work was begun, is done, is proven, went wrong, or is taken back."""

    BEGUN = "begun"
    APPLIED = "applied"
    VERIFIED = "verified"
    FAILED = "failed"
    ROLLED_BACK = "rolled-back"


@dataclass(frozen=True)
class Progress:
    """One host's part. `wanted`: every host of the rollout in its order, and what it is to come to (a digest, a version: equal
    texts are the same wish). `previous`: what the job goes back to on this host, None where there is nothing. `closed`: the
    whole rollout ended well. `started_at`: ISO 8601 in UTC. `client`: the run that wrote it: a rollout that is resumed has another.
    `over`: the `key` of the record that may be written over, which that client saw before it began; None where it saw none.
    """

    id: str
    job: str
    by: str
    started_at: str
    host: str
    wanted: Mapping[str, str]
    previous: Optional[str] = None
    phase: Phase = Phase.BEGUN
    reason: str = ""
    closed: bool = False
    client: str = ""
    over: Optional[str] = None

    @property
    def key(self) -> str:
        """Whose the host is: equal ones are the same client of the same rollout."""
        return f"{self.id}/{self.client}"

    def refuse_taken(self, here: Optional[Progress]) -> None:
        """Raises NearsocketError where the host's record (`here`) is neither this client's nor the one that it saw."""
        if here is None or here.key in (self.key, self.over):
            return
        other = f"it in {one_line(here.id, 40)} by {one_line(here.by, 80)}"
        found = "another client at work on it (--resume)" if here.id == self.id else other
        raise NearsocketError(
            f"expected this host in rollout {one_line(self.id, 40)}, found {found}", "whoever came later has the host now"
        )

    def at(self, phase: Phase, reason: str = "") -> Progress:
        """The same host, that far."""
        return dataclasses.replace(self, phase=phase, reason=one_line(reason, 500))

    def value(self) -> dict[str, Any]:
        """JSON's own values, schema first."""
        return {"schema": SCHEMA, **dataclasses.asdict(self), "wanted": dict(self.wanted), "phase": self.phase.value}

    def to_json(self) -> str:
        """Text for the file, one line feed at its end."""
        return json.dumps(self.value(), indent=1, ensure_ascii=True) + "\n"


def from_value(given: Any) -> Progress:
    """The progress of `value`. Raises NearsocketError, one line, for anything else."""
    try:
        entry = dict(given)
        if entry.pop("schema") != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found another schema", "use the nearsocket that wrote it")
        entry["phase"] = Phase(entry["phase"])
        entry["wanted"] = {_text(name): _text(wish) for name, wish in entry["wanted"].items()}
        made = Progress(**entry)
        for name in ("id", "job", "by", "started_at", "host", "reason", "client"):
            _text(getattr(made, name))
        texts = all(given is None or isinstance(given, str) for given in (made.previous, made.over))
        if not texts or not isinstance(made.closed, bool):
            raise TypeError("previous, over or closed of another type")
        return made
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}") from None


def from_json(text: str) -> Progress:
    """The progress that `to_json` wrote. Raises NearsocketError, one line, for anything else."""
    try:
        return from_value(json.loads(text))
    except (ValueError, RecursionError):
        raise NearsocketError(f"expected {SCHEMA}, found other text") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {type(value).__name__}")
    return value


def unfinished(found: Mapping[str, Optional[Progress]]) -> Optional[Progress]:
    """The newest rollout that is not at its end among these hosts (host to what it has): one of its records, or None.

    A rollout is at its end where one of its hosts says so (`closed`), or where each of its hosts that is among these is proven in
    it or belongs to a newer one. A host that has no record of it was not come to.
    """
    newest = sorted({(one.started_at, one.id): one for one in found.values() if one}.values(), key=_age, reverse=True)
    for rollout in newest:
        mine = [one for one in found.values() if one and one.id == rollout.id]
        if any(one.closed for one in mine):
            continue
        if not all(_done(found[host], rollout) for host in rollout.wanted if host in found):
            return rollout
    return None


def _age(one: Progress) -> tuple[str, str]:
    return (one.started_at, one.id)


def _done(here: Optional[Progress], rollout: Progress) -> bool:
    if here is None:
        return False
    if here.id != rollout.id:
        return _age(here) > _age(rollout)
    return here.phase is Phase.VERIFIED
