"""A snapshot: what one host said about itself at one moment. Raw sources, nothing judged."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model.errors import UsageError

SCHEMA = "nearsocket.snapshot/1"
#: The longest name that DNS and Linux give a host has 255 characters or fewer.
LONGEST_NAME = 255


class SnapshotError(UsageError):
    """A text that should be a snapshot is not one; the message says what was expected and found."""


class SourceStatus(str, enum.Enum):
    """How reading a source went."""

    OK = "ok"
    ABSENT = "absent"
    DENIED = "denied"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True)
class Source:
    """One source: `text` as read, or `data` where it was gathered from many files or calls; `reason` where not ok."""

    status: SourceStatus
    text: Optional[str] = None
    data: Any = None
    reason: Optional[str] = None
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the source was read."""
        return self.status is SourceStatus.OK


MISSING = Source(SourceStatus.ABSENT, reason="not in this snapshot")


@dataclass(frozen=True)
class Snapshot:
    """One host's raw sources. `taken_at` is ISO 8601 in UTC; `privilege` holds uid and effective capabilities."""

    host: str
    taken_at: str
    boot_id: Optional[str]
    privilege: Mapping[str, Any]
    program: Mapping[str, Any]
    sources: Mapping[str, Source] = field(default_factory=dict)

    def source(self, name: str) -> Source:
        """The source of that name; an absent one with a reason where the snapshot lacks it."""
        return self.sources.get(name, MISSING)

    def text(self, name: str) -> str:
        """The source's text, empty where it was not read."""
        source = self.source(name)
        return source.text or "" if source.ok else ""

    def data(self, name: str) -> Any:
        """The source's data, None where it was not read."""
        source = self.source(name)
        return source.data if source.ok else None

    def to_json(self, indent: Optional[int] = 1) -> str:
        """The snapshot as its JSON text, keys in a stable order."""
        sources: dict[str, Any] = {}
        for name in sorted(self.sources):
            source = self.sources[name]
            entry: dict[str, Any] = {"status": source.status.value, "took_s": round(source.took_s, 4)}
            for key in ("text", "data", "reason"):
                value = getattr(source, key)
                if value is not None:
                    entry[key] = value
            sources[name] = entry
        whole = {
            "schema": SCHEMA,
            "host": self.host,
            "taken_at": self.taken_at,
            "boot_id": self.boot_id,
            "privilege": dict(self.privilege),
            "program": dict(self.program),
            "sources": sources,
        }
        return json.dumps(whole, indent=indent, ensure_ascii=True)


def from_json(text: str) -> Snapshot:
    """Read a snapshot's JSON text.

    Raises SnapshotError, one line, for anything else: cut short, another schema, wrong types.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"expected the JSON of a snapshot ({SCHEMA}), found text that is not JSON ({error})") from None
    if not isinstance(whole, dict) or "schema" not in whole:
        raise SnapshotError(f"expected a snapshot ({SCHEMA}), found JSON without a schema")
    if whole["schema"] != SCHEMA:
        raise _foreign(str(whole["schema"])[:80])
    for key, kind in (("host", str), ("taken_at", str), ("privilege", dict), ("program", dict), ("sources", dict)):
        if not isinstance(whole.get(key), kind):
            raise SnapshotError(f"expected {key!r} in the snapshot to be a {kind.__name__}, found {type(whole.get(key)).__name__}")
    for key in ("host", "taken_at"):
        if not 0 < len(whole[key]) <= LONGEST_NAME:
            raise SnapshotError(f"expected {key!r} in the snapshot to have 1 to {LONGEST_NAME} characters, found {len(whole[key])}")
    boot_id = whole.get("boot_id")
    return Snapshot(
        host=whole["host"],
        taken_at=whole["taken_at"],
        boot_id=boot_id if isinstance(boot_id, str) else None,
        privilege=whole["privilege"],
        program=whole["program"],
        sources={name: _source(name, entry) for name, entry in whole["sources"].items()},
    )


def _foreign(schema: str) -> SnapshotError:
    """The error about a text of another schema, with what to do about it."""
    family, _, version = schema.partition("/")
    own_family, _, own_version = SCHEMA.partition("/")
    if family != own_family or not version.isdecimal():
        ours = family.startswith("nearsocket.")
        hint = (
            "name the snapshot that it was made from (audit --save DIR)"
            if ours
            else "name a file that nearsocket audit --save DIR wrote"
        )
        return SnapshotError(f"expected schema {SCHEMA}, found {schema!r}, no snapshot", hint)
    if int(version) > int(own_version):
        return SnapshotError(
            f"expected schema {SCHEMA}, found {schema!r}, a newer one", "install the version of nearsocket that took it"
        )
    return SnapshotError(
        f"expected schema {SCHEMA}, found {schema!r}, an older one", "take a new snapshot: nearsocket audit HOST --save DIR"
    )


def _source(name: str, entry: Any) -> Source:
    try:
        status = SourceStatus(entry["status"])
        took_s = float(entry.get("took_s") or 0.0)
        if not math.isfinite(took_s):
            raise ValueError("no number of seconds")
        text, reason = entry.get("text"), entry.get("reason")
        if not (text is None or isinstance(text, str)) or not (reason is None or isinstance(reason, str)):
            raise TypeError("text and reason are texts")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise SnapshotError(
            f"source {name[:80]!r} in the snapshot: expected {{status, text or data, reason, took_s}}, found {str(entry)[:80]!r}"
        ) from None
    return Source(status, text, entry.get("data"), reason, took_s)
