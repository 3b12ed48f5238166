"""What the control side asks a server's apply for, `nearsocket.order/1`: one line of JSON on the program's standard input. Pure."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Optional

from nearsocket.model import freeze, generation, handover
from nearsocket.model.errors import NearsocketError
from nearsocket.model.freeze import Freeze
from nearsocket.model.generation import Generation
from nearsocket.model.handover import Handover
from nearsocket.model.probe import path
from nearsocket.model.probe.path import PathProbe
from nearsocket.model.rollout import inforce, progress
from nearsocket.model.rollout.inforce import InForce
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.text import one_line

SCHEMA = "nearsocket.order/1"


class Part(str, enum.Enum):
    """A part that can be applied alone: the host's tuning, the replicas, or just their images on the host."""

    TUNE = "tune"
    ENGINE = "engine"
    IMAGE = "image"


class StopAt(str, enum.Enum):
    """Where replicas start one after another: which proof of one stops those behind it. UNKNOWN: a failure, and none at all."""

    NOTHING = "nothing"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Order:
    """One apply. `generation` None: go back to generation `number` (None: the one before). `part`: only that part of it.

    `dry`: write nothing, say everything. `allow_removals`: replicas may be taken out. `force`: an older commit of the inventory
    may win. `reload_risk`: why a daemon-reload must not happen now, as the survey saw it (which container it could strip of its
    GPUs); the host looks again, unless `accept_reload_risk`.
    `lock_wait_s`: how long to wait for another apply on the same host. `freeze`: the inventory's; `override_freeze`: why a frozen
    host is to be changed all the same. `remove`: leave this host, whatever else is said; `keep_engines`: the engines
    run on. `handovers`: engines that run and are taken over. `probes`: how the path of each replica is proven before a start that
    is new; the host decides which are due. `one_by_one`: replicas start one after another too, and what a start's proof says may
    stop those behind it. `rollout`: this host's part of one, written down before the first change and after the last. `surveyed`:
    what was in force when the order was made; where that is another generation by now, it is refused (None: it is not looked at).
    """

    generation: Optional[Generation] = None
    number: Optional[int] = None
    part: Optional[Part] = None
    dry: bool = False
    allow_removals: bool = False
    force: bool = False
    reload_risk: Optional[str] = None
    accept_reload_risk: bool = False
    lock_wait_s: float = 0.0
    freeze: Optional[Freeze] = None
    override_freeze: Optional[str] = None
    remove: bool = False
    keep_engines: bool = False
    handovers: tuple[Handover, ...] = ()
    one_by_one: Optional[StopAt] = None
    rollout: Optional[Progress] = None
    probes: tuple[PathProbe, ...] = ()
    surveyed: Optional[InForce] = None

    def to_json(self) -> str:
        """One line."""
        made = self.generation
        value: dict[str, Any] = {
            "schema": SCHEMA,
            "manifest": made.manifest.to_json() if made else None,
            "contents": {path: base64.b64encode(data).decode() for path, data in made.contents.items()} if made else {},
            "number": self.number,
            "part": self.part.value if self.part else None,
            "dry": self.dry,
            "allow_removals": self.allow_removals,
            "force": self.force,
            "reload_risk": self.reload_risk,
            "accept_reload_risk": self.accept_reload_risk,
            "lock_wait_s": self.lock_wait_s,
            "freeze": dataclasses.asdict(self.freeze) if self.freeze else None,
            "override_freeze": self.override_freeze,
            "remove": self.remove,
            "keep_engines": self.keep_engines,
            "handovers": [handover.to_value(entry) for entry in self.handovers],
            "one_by_one": self.one_by_one.value if self.one_by_one else None,
            "rollout": self.rollout.value() if self.rollout else None,
            "probes": [path.to_value(entry) for entry in self.probes],
            "surveyed": dataclasses.asdict(self.surveyed) if self.surveyed else None,
        }
        return json.dumps(value, sort_keys=True) + "\n"


def from_json(text: str) -> Order:
    """The order that `to_json` wrote, each content held against the manifest. Raises NearsocketError for anything else."""
    try:
        value: dict[str, Any] = json.loads(text)
        if value.pop("schema") != SCHEMA:
            raise NearsocketError(f"expected {SCHEMA}, found another schema", "use one version of nearsocket on both sides")
        manifest, contents = value.pop("manifest"), value.pop("contents")
        made = _generation(manifest, contents) if manifest is not None else None
        value["handovers"] = tuple(handover.from_value(entry) for entry in value["handovers"])
        value["probes"] = tuple(path.from_value(entry) for entry in value["probes"])
        value["freeze"] = freeze.from_value(value["freeze"])
        value["rollout"] = progress.from_value(value["rollout"]) if value["rollout"] is not None else None
        value["surveyed"] = inforce.from_value(value["surveyed"]) if value["surveyed"] is not None else None
        value["one_by_one"] = StopAt(value["one_by_one"]) if value["one_by_one"] is not None else None
        value["part"] = Part(value["part"]) if value["part"] is not None else None
        return Order(generation=made, **value)
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise NearsocketError(f"expected {SCHEMA}, found: {one_line(str(error), 100)}") from None


def _generation(text: str, contents: dict[str, str]) -> Generation:
    manifest = generation.from_json(text)
    decoded = {path: base64.b64decode(data, validate=True) for path, data in contents.items()}
    if decoded.keys() != {entry.path for entry in manifest.files}:
        raise NearsocketError("expected the contents of exactly the manifest's files, found others")
    for entry in manifest.files:
        if hashlib.sha256(decoded[entry.path]).hexdigest() != entry.sha256 or len(decoded[entry.path]) != entry.size_bytes:
            raise NearsocketError(f"expected {one_line(entry.path, 80)} with the manifest's hash, found other content")
    return Generation(manifest, decoded)
