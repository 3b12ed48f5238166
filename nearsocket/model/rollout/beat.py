"""The sign of life of a rollout's client on a host, `nearsocket.rollout-beat/1`: who is at work there, and since when. Pure.

It decides nothing about whose the host is (`progress.Progress.key` does): it tells a colleague, before anything, to wait or to ask.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.places import VAR
from nearsocket.model.text import one_line

SCHEMA, SEEN = "nearsocket.rollout-beat/1", "nearsocket.rollout-seen/1"
#: Where it lies on a host while a client has its turn there.
FILE = f"{VAR}/rollout-beat.json"
LARGEST_BYTES = 64 << 10
#: How often a client shows itself, and how long behind its last sign it counts as gone: three signs may be lost.
EVERY_S, GONE_S = 30.0, 120.0


@dataclass(frozen=True)
class Beat:
    """One sign. `id`, `job`: of the rollout; `client`: the run of it that is at work, `by` whom, `since` when (ISO 8601, UTC);
    `over`: the key of the record that it may write over; `run`: which process it is, for who runs on the same machine; `count`:
    from 1, another for each sign."""

    id: str
    job: str
    client: str
    by: str
    since: str
    over: Optional[str] = None
    run: str = ""
    count: int = 1

    @property
    def key(self) -> str:
        """Whose it is: as `Progress.key`."""
        return f"{self.id}/{self.client}"

    def __str__(self) -> str:
        """`ops@here (site 1a2b since 2030-01-01T00:00:00Z)`, fit for a line."""
        return one_line(f"{self.by} ({self.job} {self.id} since {self.since})", 240)

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, ensure_ascii=True) + "\n"


@dataclass(frozen=True)
class Seen:
    """A sign that is on a host, and how long ago it was made there, in seconds by the host's own clock; never below 0."""

    beat: Beat
    age_s: float

    @property
    def lasts_s(self) -> float:
        """How long it still counts; 0 where its client is gone."""
        return max(0.0, GONE_S - self.age_s)


def beat_from(text: str) -> Beat:
    """The beat that `to_json` wrote. Raises NearsocketError, one line, for anything else."""
    return _beat(_object(text, SCHEMA))


def seen_to_json(seen: Optional[Seen]) -> str:
    """A host's answer to who asks: one line."""
    told = {"beat": {"schema": SCHEMA, **dataclasses.asdict(seen.beat)}, "age_s": seen.age_s} if seen else {}
    return json.dumps({"schema": SEEN, **told}, ensure_ascii=True) + "\n"


def seen_from(text: str) -> Optional[Seen]:
    """That answer; None where no client showed itself. Raises NearsocketError, one line, for anything else."""
    value = _object(text, SEEN)
    if "beat" not in value:
        return None
    age_s: Any = value.get("age_s")
    if type(age_s) not in (int, float) or not 0 <= age_s < float("inf"):
        raise NearsocketError(f"expected {SEEN} with seconds from 0, found others")
    return Seen(_beat(_without_schema(value["beat"], SCHEMA)), float(age_s))


def _object(text: str, schema: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NearsocketError(f"expected {schema}, found other text") from None
    return _without_schema(value, schema)


def _without_schema(value: Any, schema: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("schema") != schema:
        raise NearsocketError(f"expected {schema}, found another schema", "use the nearsocket that wrote it")
    return {name: one for name, one in value.items() if name != "schema"}


def _beat(value: dict[str, Any]) -> Beat:
    try:
        made = Beat(**value)
    except TypeError as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}") from None
    words = (made.id, made.job, made.client, made.by, made.since, made.run, made.over or "")
    if not all(isinstance(word, str) for word in words) or type(made.count) is not int:
        raise NearsocketError(f"expected {SCHEMA}, found values of other types")
    return made
