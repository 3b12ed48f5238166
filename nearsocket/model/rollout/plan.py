"""A rollout's plan for review, `nearsocket.rollout-plan/1`: what is in force on each host, and what it would come to. Pure."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Optional, Protocol

from nearsocket.model.errors import UsageError
from nearsocket.model.rollout.inforce import told
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.rollout-plan/1"


class Planned(Protocol):
    """What is looked at on a host: control/rollout/job.Ready."""

    @property
    def wanted(self) -> str:
        """What it would come to."""

    @property
    def current(self) -> Optional[str]:
        """What is in force."""

    @property
    def digest(self) -> Optional[str]:
        """What that is, exactly."""

    @property
    def fingerprint(self) -> str:
        """What the plan rests on."""


@dataclass(frozen=True)
class Entry:
    """One host. `current`: what is in force (a generation's number), `digest`: its digest; `changes`: a line each, for eyes."""

    name: str
    current: Optional[str]
    digest: Optional[str]
    wanted: str
    fingerprint: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reviewed:
    """The whole plan, hosts in their order."""

    job: str
    made_by: str
    made_at: str
    hosts: tuple[Entry, ...]

    def to_json(self) -> str:
        """Text for the file, one line feed at its end."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=1, ensure_ascii=True) + "\n"

    def refusal(self, name: str, now: Planned) -> Optional[str]:
        """Why the plan does not hold for that host any more; None where it does. What it would come to may be in force already."""
        entry = next((one for one in self.hosts if one.name == name), None)
        if entry is None:
            return f"expected a plan for {one_line(name, 80)}, found none in the file"
        for what, was, found in (
            ("what it rests on (fingerprint)", entry.fingerprint, now.fingerprint),
            ("what is rendered for it", entry.wanted, now.wanted),
        ):
            # A driver upgrade that is made rests on no packages any more.
            if was != found and not (found == "" and what.startswith("what it rests")):
                return f"expected {what} as reviewed, {one_line(was, 30)}, found {one_line(found, 30)}"
        moved = (entry.current, entry.digest) != (now.current, now.digest)
        if moved and now.digest != entry.wanted:
            return f"expected {told(entry.current, entry.digest)} in force as reviewed, found {told(now.current, now.digest)}"
        return None


def from_json(text: str) -> Reviewed:
    """The plan that `to_json` wrote. Raises UsageError, one line, for anything else."""
    hint = "write one: nearsocket rollout INVENTORY --check --save-plan FILE"
    try:
        value: dict[str, Any] = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("no JSON object")
        if value.pop("schema") != SCHEMA:
            raise UsageError(f"expected {SCHEMA}, found another schema", hint)
        hosts = tuple(_entry(entry) for entry in value.pop("hosts"))
        made = Reviewed(hosts=hosts, **value)
        if not all(isinstance(word, str) for word in (made.job, made.made_by, made.made_at)):
            raise TypeError("expected texts")
        if len({host.name for host in hosts}) < len(hosts):
            raise ValueError("a host that is named twice")
        return made
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UsageError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}", hint) from None


def _entry(value: Any) -> Entry:
    made = Entry(**{**value, "changes": tuple(str(line) for line in value["changes"])})
    texts = (made.name, made.wanted, made.fingerprint, made.current or "", made.digest or "")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected texts in a host's entry")
    return made
