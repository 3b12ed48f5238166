"""What a person may write in an inventory, as pydantic models, and a broken one's first fault as one line."""

from __future__ import annotations

import datetime
import difflib
import re
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from nearsocket.control.serve_schema import ReplicaEntry, ServeEntry, ServingKeys, TuneEntry
from nearsocket.control.strict import Line, Strict
from nearsocket.control.target import is_host
from nearsocket.control.waivers import Waiver
from nearsocket.model import cpulist
from nearsocket.model.errors import UsageError
from nearsocket.model.freeze import Freeze
from nearsocket.model.report import Maintenance
from nearsocket.model.text import one_line


def _node_list(text: str) -> str:
    if not cpulist.parse(text):
        raise ValueError("expected a list of nodes such as 0-3,8")
    return text


def _plain_name(name: str) -> str:
    if not is_host(name):
        raise ValueError(f"expected a host name or an address, found {name!r}")
    return name


def _day(value: object) -> datetime.date:
    if type(value) is datetime.date:
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return datetime.date.fromisoformat(value)
    raise ValueError("expected a day such as 2026-03-31")


Day = Annotated[datetime.date, BeforeValidator(_day)]


def _several(value: object) -> object:
    return value.split(",") if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_several)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_several)]
NodeList = Annotated[str, AfterValidator(_node_list)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_plain_name)]


class MaintenanceEntry(Strict):
    """`maintenance: {until, reason}` of a host."""

    until: Day
    reason: Line

    def maintenance(self) -> Maintenance:
        """The value that reports carry."""
        return Maintenance(self.until.isoformat(), self.reason)


class FreezeEntry(Strict):
    """`freeze: {until, reason}`: nothing is changed there up to that day, that day included."""

    until: Day
    reason: Line

    def freeze(self) -> Freeze:
        """The value that goes with an order."""
        return Freeze(self.until.isoformat(), self.reason, "the inventory")


class WaiverEntry(Strict):
    """One of `waivers`; `host` is a pattern, `*` where left out, and not used in a host's own."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*\.[a-z0-9]+(-[a-z0-9]+)*$")]
    host: Line | None = None
    reason: Line
    owner: Line
    expires: Day

    def waiver(self, host: str) -> Waiver:
        """The value that is applied, for the hosts of that pattern."""
        return Waiver(self.id, host, self.reason, self.owner, self.expires)


class SudoEntry(Strict):
    """`sudo` in its long form. The password is never here: NEARSOCKET_SUDO_PASSWORD or a prompt."""

    user: Name | None = None


class Reach(Strict):
    """How a host is reached."""

    user: Name | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    ssh_key: Line | None = None
    ssh_config_file: Line | None = None
    ssh_known_hosts_file: Line | None = None
    ssh_strict_host_key_checking: Annotated[str, Field(pattern="^(yes|accept-new)$")] | None = None
    ssh_connect_timeout: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] | None = None
    sudo: bool | SudoEntry | None = None
    near: NodeList | None = None


class Level(Reach, ServingKeys):
    """What `defaults`, a group and each host may say."""

    freeze: FreezeEntry | None = None


class HostEntry(Level):
    """One host."""

    name: Name
    address: Name | None = None
    local: bool = False
    groups: tuple[Name, ...] = ()
    waivers: tuple[WaiverEntry, ...] = ()
    maintenance: MaintenanceEntry | None = None


class Fleet(Strict):
    """The whole file."""

    defaults: Level = Level()
    groups: dict[Name, Level] = Field(default_factory=dict)
    hosts: Annotated[tuple[HostEntry, ...], Field(min_length=1)]
    waivers: tuple[WaiverEntry, ...] = ()
    freeze: FreezeEntry | None = None


class HostData(BaseModel):
    """What pyinfra's data of one host means to an audit; everything else in it is somebody else's."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    ssh_hostname: Name | None = None
    ssh_user: Name | None = None
    ssh_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    ssh_key: Line | None = None
    ssh_key_password: pydantic.SecretStr | None = None
    ssh_password: pydantic.SecretStr | None = None
    ssh_config_file: Line | None = None
    ssh_known_hosts_file: Line | None = None
    ssh_strict_host_key_checking: Annotated[str, Field(pattern="^(yes|no|off|accept-new|ask)$")] | None = None
    ssh_connect_timeout: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] | None = None
    sudo: Annotated[bool, Field(alias="_sudo")] = False
    sudo_user: Annotated[Name | None, Field(alias="_sudo_user")] = None
    sudo_password: Annotated[pydantic.SecretStr | None, Field(alias="_sudo_password")] = None
    nearsocket_near: NodeList | None = None
    nearsocket_waivers: tuple[WaiverEntry, ...] = ()
    nearsocket_maintenance: MaintenanceEntry | None = None
    nearsocket_freeze: FreezeEntry | None = None
    nearsocket_serve: ServeEntry | None = None
    nearsocket_replicas: tuple[ReplicaEntry, ...] | None = None
    nearsocket_tune: TuneEntry | None = None
    nearsocket_reserved_cores: Annotated[int, Field(ge=0, le=1024)] | None = None
    nearsocket_inventory: Path | None = None
    nearsocket_strict: bool = False
    nearsocket_only: Words = ()
    nearsocket_checks: Paths = ()
    nearsocket_save: Path | None = None
    nearsocket_timeout: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60.0
    allow_removals: bool = False
    accept_reload_risk: bool = False
    force: bool = False
    override_freeze: Line | None = None
    keep_engines: bool = False
    lock_wait: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 60.0
    generation: Annotated[int, Field(ge=1)] | None = None
    driver: Line | None = None
    reboot_limit: Annotated[float, Field(ge=30, le=7200, allow_inf_nan=False)] = 1200.0
    disturb: bool = False
    resume: bool = False
    anew: bool = False
    accept_unknown: bool = False


def read_data(data: Mapping[str, Any], where: str) -> HostData:
    """The data of one host that an audit uses. Raises UsageError, one line."""
    try:
        return HostData.model_validate(dict(data))
    except pydantic.ValidationError as error:
        raise UsageError(f"{where}: {say(worst(error), HostData)}") from None


def worst(error: pydantic.ValidationError) -> Any:
    """The fault to tell of: an unknown key first, since it is often why another one is missing."""
    faults = error.errors(include_url=False)
    return next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])


def say(fault: Any, root: type[BaseModel] = Fleet) -> str:
    """One of pydantic's faults as a line: where, what was expected, what was found, what may have been meant."""
    steps = [step for step in fault["loc"] if step not in ("bool", "SudoEntry") and "[" not in str(step)]
    place = ".".join(str(step) for step in steps) or "the file"
    if fault["type"] == "extra_forbidden":
        known = sorted(_keys(root, steps[:-1]))
        close = difflib.get_close_matches(str(steps[-1]), known, 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        return f"{place}: expected one of {', '.join(known)}, found {one_line(str(steps[-1]), 80)!r}{meant}"
    if fault["type"] == "missing":
        return f"expected {steps[-1]!r} in {'.'.join(str(step) for step in steps[:-1]) or 'the file'}, found none"
    secret = any(word in str(step) for step in steps for word in ("password", "secrets", "environment"))
    found = "something else (not shown)" if secret else one_line(repr(fault.get("input")), 80)
    return f"{place}: {_expected(fault['msg'])}, found {found}"


def _expected(message: str) -> str:
    """pydantic's sentence in this project's form: what was expected."""
    message = message.removeprefix("Value error, ").partition(", found")[0]
    return one_line(re.sub(r"^\w+ should (be|have|match) ", r"expected to \1 ", message), 200)


def _keys(root: type[BaseModel], steps: Iterable[Any]) -> Iterable[str]:
    """The keys that are known at that place."""
    model, skip = root, False
    for step in steps:
        if skip or isinstance(step, int):
            skip = False  # a place in a list, or the free key of a mapping such as `groups`
            continue
        found = model.model_fields.get(step)
        inner = _model_in(found.annotation) if found is not None else None
        if found is None or inner is None:
            return ()
        model, skip = inner, "dict[" in str(found.annotation)
    return model.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside a type such as `tuple[Model, ...] | None`; None where there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (_model_in(part) for part in typing.get_args(annotation))
    return next((model for model in inner if model is not None), None)
