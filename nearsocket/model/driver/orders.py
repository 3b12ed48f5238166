"""What the control side asks a host for while its driver changes, what the host answers, and what it keeps on its disk. Pure."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from nearsocket.model.driver.preflight import Grade, Look
from nearsocket.model.errors import NearsocketError
from nearsocket.model.freeze import Freeze
from nearsocket.model.places import REPROVISION
from nearsocket.model.text import one_line

ORDER, ANSWER, STATE = "nearsocket.reprovision-order/1", "nearsocket.reprovision/1", "nearsocket.reprovision-state/1"
#: Where a host keeps how far it is; it goes with all else when the host is left.
FILE = f"{REPROVISION}/state.json"


class Action(str, enum.Enum):
    """One exec each. STATUS and PREFLIGHT read only; REHEARSE fetches and builds in nearsocket's own folder; the rest changes."""

    STATUS = "status"
    PREFLIGHT = "preflight"
    REHEARSE = "rehearse"
    PREPARE = "prepare"
    UPGRADE = "upgrade"
    REBOOT = "reboot"
    AFTER = "after"
    START = "start"
    FINISH = "finish"
    BACK = "back"


class Phase(str, enum.Enum):
    """How far a host is. A kill leaves the phase that had begun, and its action is done again whole."""

    STOPPING = "stopping"
    STOPPED = "stopped"
    UPGRADING = "upgrading"
    UPGRADED = "upgraded"
    REBOOTING = "rebooting"
    PROVEN = "proven"
    DONE = "done"


@dataclass(frozen=True)
class Order:
    """One step. `to`: the driver's version; `by`: who; `disturb`: leave to end what others run on the GPUs.

    `replica`: for START, which one. `accept_unknown`: a proof that is unknown counts as good enough. `forward`: for PREPARE, a host
    on its way back is turned round; for any, a state that cannot be read is none. `measured`: for START, the replicas whose
    all-reduces were good behind this driver.
    """

    action: Action
    id: str
    by: str
    to: str
    disturb: bool = False
    replica: Optional[str] = None
    accept_unknown: bool = False
    lock_wait_s: float = 0.0
    freeze: Optional[Freeze] = None
    override_freeze: Optional[str] = None
    forward: bool = False
    measured: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"schema": ORDER, **dataclasses.asdict(self), "action": self.action.value}, sort_keys=True) + "\n"


@dataclass(frozen=True)
class State:
    """What is on the host's disk. `frm`: the driver before; `back`: on the way back to it. `packages`: the members before, with
    whole versions; `holds`: which of them were held. `boot_id`: of the boot that is to end. `units`: replicas' units that ran;
    `started`: those whose start was begun again. `caches`: folders with what engines compiled; `gpus`: how many there were.
    `words`: what the transaction names, as it was looked at. `measured`: replicas whose all-reduces were good since.
    """

    id: str
    by: str
    begun_at: str
    frm: str
    to: str
    phase: Phase
    back: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    holds: tuple[str, ...] = ()
    boot_id: Optional[str] = None
    units: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    gpus: int = 0
    words: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()

    def at(self, phase: Phase, **more: Any) -> State:
        """The same, that far."""
        return dataclasses.replace(self, phase=phase, **more)

    @property
    def goal(self) -> str:
        """The version that the host is on the way to."""
        return self.frm if self.back else self.to

    @property
    def unfinished(self) -> bool:
        """Whether there is something left to do."""
        return self.phase is not Phase.DONE

    def value(self) -> dict[str, Any]:
        """JSON's own values."""
        return {**dataclasses.asdict(self), "packages": dict(self.packages), "phase": self.phase.value}

    def to_json(self) -> str:
        """Text for the file."""
        return json.dumps({"schema": STATE, **self.value()}, indent=1, ensure_ascii=True) + "\n"


@dataclass(frozen=True)
class Answer:
    """What one step came to. `looks`: a preflight's; `words`: what the transaction names; `installed`, `loaded`: the driver's
    version as packages and as the module in memory have it; `split`: packages of another version than the rest. `ran`: of the
    `replicas`, those that ran when an upgrade began, None where none is under way; `held`: those that an upgrade keeps down.
    `hooked`: for START, which hook of a replica that is up and proven failed. `error`: why it failed; `touched`: something was
    changed; `busy`: nothing was, since somebody else is at work there.
    """

    action: Action
    state: Optional[State] = None
    looks: tuple[Look, ...] = ()
    words: tuple[str, ...] = ()
    installed: Optional[str] = None
    loaded: Optional[str] = None
    boot_id: Optional[str] = None
    replicas: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    ran: Optional[tuple[str, ...]] = None
    held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    took_s: float = 0.0
    error: Optional[str] = None
    hint: Optional[str] = None
    touched: bool = False
    hooked: Optional[str] = None
    busy: bool = False

    @property
    def stops(self) -> tuple[Look, ...]:
        """What forbids to begin."""
        return tuple(look for look in self.looks if look.grade is Grade.STOP)

    def to_json(self) -> str:
        """One line."""
        value = dataclasses.asdict(self)
        value["action"] = self.action.value
        value["state"] = self.state.value() if self.state else None
        value["looks"] = [{**dataclasses.asdict(look), "grade": look.grade.value} for look in self.looks]
        return json.dumps({"schema": ANSWER, **value}, ensure_ascii=True) + "\n"


def order_from_json(text: str) -> Order:
    """The order that `to_json` wrote. Raises NearsocketError for anything else."""
    value = _value(text, ORDER)
    try:
        freeze = value.pop("freeze")
        value["measured"] = tuple(map(str, value["measured"]))
        return Order(**{**value, "action": Action(value["action"]), "freeze": Freeze(**freeze) if freeze else None})
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(ORDER, error) from None


def state_from_json(text: str) -> State:
    """The state that `to_json` wrote. Raises NearsocketError for anything else."""
    return _state(_value(text, STATE))


def answer_from_json(text: str) -> Answer:
    """The answer that `to_json` wrote. Raises NearsocketError for anything else."""
    value = _value(text, ANSWER)
    try:
        value["action"] = Action(value["action"])
        value["state"] = _state(value["state"]) if value["state"] is not None else None
        looks = value["looks"]
        value["looks"] = tuple(Look(str(e["check"]), Grade(e["grade"]), str(e["text"]), str(e["hint"])) for e in looks)
        for name in ("words", "replicas", "notes", "split", "held"):
            value[name] = tuple(map(str, value[name]))
        value["ran"] = tuple(map(str, value["ran"])) if value["ran"] is not None else None
        return Answer(**value)
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(ANSWER, error) from None


def _state(value: dict[str, Any]) -> State:
    try:
        known = {**value, "phase": Phase(value["phase"]), "packages": {str(k): str(v) for k, v in value["packages"].items()}}
        for name in ("holds", "units", "started", "caches", "words", "measured"):
            known[name] = tuple(map(str, known.get(name, ())))
        return State(**known)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _foreign(STATE, error) from None


def _value(text: str, schema: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        if value.pop("schema") != schema:
            raise NearsocketError(f"expected {schema}, found another schema", "use one version of nearsocket on both sides")
        return dict(value)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _foreign(schema, error) from None


def _foreign(schema: str, error: Exception) -> NearsocketError:
    return NearsocketError(f"expected {schema}, found: {one_line(str(error), 100)}")
