"""What a server's apply answers, `nearsocket.outcome/1`, and what a survey says of what is installed. Pure."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe.path import Probed, probed_from
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.outcome/1"


class Action(str, enum.Enum):
    """What is done to a thing."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    ASIDE = "keep aside"
    SWITCH = "switch"
    RELOAD = "reload"
    START = "start"
    RESTART = "restart"
    STOP = "stop"
    SET = "set"
    PULL = "pull"
    PROBE = "probe"


class Kind(str, enum.Enum):
    """What kind of thing is changed. VALUE: a kernel setting in /proc/sys or /sys."""

    PROGRAM = "program"
    GENERATION = "generation"
    FILE = "file"
    LINK = "link"
    SYSTEMD = "systemd"
    UNIT = "unit"
    REPLICA = "replica"
    VALUE = "value"
    IMAGE = "image"


@dataclass(frozen=True)
class Change:
    """One change, made or (dry) to be made. `reason`: why, where it is not the settings' own change."""

    kind: Kind
    action: Action
    name: str
    reason: str = ""

    def __str__(self) -> str:
        """One line for people."""
        return one_line(f"{self.action.value} {self.kind.value} {self.name}" + (f" ({self.reason})" if self.reason else ""))


@dataclass(frozen=True)
class Installed:
    """What a host has: the current generation (None: none), whether all is as it says, and if not, what an apply of it would do."""

    number: Optional[int]
    digest: Optional[str]
    program: Optional[str]
    clean: bool
    reasons: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """One apply's result. `error`: why it was refused or failed; `wrote`: whether anything was written before.

    `number`, `previous`: generations after and before. `diff`: unified, what is changed, secrets masked. `states`: unit to
    `active (running)`. `timings`: step to seconds. `frozen`: a dry run's word on why the real one would be refused.
    `probes`: what proving the path of replicas before their start came to. `moved`: it was refused because another generation is
    in force than the order was made for.
    """

    dry: bool
    number: Optional[int]
    previous: Optional[int]
    digest: Optional[str]
    changes: tuple[Change, ...] = ()
    diff: str = ""
    notes: tuple[str, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    error: Optional[str] = None
    hint: Optional[str] = None
    wrote: bool = False
    frozen: Optional[str] = None
    probes: tuple[Probed, ...] = ()
    moved: bool = False

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, ensure_ascii=True) + "\n"


def from_json(text: str) -> Outcome:
    """The outcome that `to_json` wrote. Raises NearsocketError, one line, for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value.pop("schema") != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found another schema")
        value["changes"] = tuple(
            Change(Kind(c["kind"]), Action(c["action"]), str(c["name"]), str(c["reason"])) for c in value["changes"]
        )
        value["notes"] = tuple(value["notes"])
        value["probes"] = tuple(map(probed_from, value["probes"]))
        return Outcome(**value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}") from None


def installed_from(value: Mapping[str, Any]) -> Installed:
    """From JSON's own values. Raises NearsocketError for another shape."""
    try:
        whole = dict(value)
        whole["reasons"], whole["replicas"] = tuple(whole["reasons"]), tuple(whole["replicas"])
        return Installed(**whole)
    except (KeyError, TypeError) as error:
        raise NearsocketError(f"expected the state of an installation, found: {one_line(str(error), 100)}") from None
