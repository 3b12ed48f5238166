"""What a person may write in an inventory, as pydantic models."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from nearsocket.control import faults
from nearsocket.control.serve_schema import ReplicaEntry, ServeEntry, ServingKeys, TuneEntry
from nearsocket.control.strict import Line, Number, Strict, Whole
from nearsocket.control.target import is_host, is_user
from nearsocket.control.waivers import Waiver
from nearsocket.model import cpulist
from nearsocket.model.errors import UsageError
from nearsocket.model.freeze import Freeze
from nearsocket.model.report import Maintenance
from nearsocket.model.snapshot import LONGEST_NAME

A_DAY = "a day such as 2026-03-31"


def _node_list(text: str) -> str:
    if not cpulist.parse(text):
        raise ValueError("expected a list of nodes such as 0-3,8")
    return text


def _plain_name(name: str) -> str:
    if not is_host(name):
        raise ValueError(f"expected a host name or an address, found {name!r}")
    return name


def _user_name(name: str) -> str:
    if not is_user(name):
        raise ValueError("expected a user name")
    return name


def _day(value: object) -> datetime.date:
    if type(value) is datetime.date:
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        with contextlib.suppress(ValueError):  # a month or a day that no calendar has
            return datetime.date.fromisoformat(value)
    raise ValueError(f"expected {A_DAY}")


Day = Annotated[datetime.date, BeforeValidator(_day)]


def _several(value: object) -> object:
    return value.split(",") if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_several)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_several)]
NodeList = Annotated[str, AfterValidator(_node_list)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_plain_name)]
User = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_user_name)]


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

    user: User | None = None


class Reach(Strict):
    """How a host is reached."""

    user: User | None = None
    port: Annotated[Whole, Field(ge=1, le=65535)] | None = None
    ssh_key: Line | None = None
    ssh_config_file: Line | None = None
    ssh_known_hosts_file: Line | None = None
    ssh_strict_host_key_checking: Annotated[str, Field(pattern="^(yes|accept-new)$")] | None = None
    ssh_connect_timeout: Annotated[Number, Field(gt=0, le=600)] | None = None
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
    ssh_user: User | None = None
    ssh_port: Annotated[Whole, Field(ge=1, le=65535)] | None = None
    ssh_key: Line | None = None
    ssh_key_password: pydantic.SecretStr | None = None
    ssh_password: pydantic.SecretStr | None = None
    ssh_config_file: Line | None = None
    ssh_known_hosts_file: Line | None = None
    ssh_strict_host_key_checking: Annotated[str, Field(pattern="^(yes|no|off|accept-new|ask)$")] | None = None
    ssh_connect_timeout: Annotated[Number, Field(gt=0, le=600)] | None = None
    sudo: Annotated[bool, Field(alias="_sudo")] = False
    sudo_user: Annotated[User | None, Field(alias="_sudo_user")] = None
    sudo_password: Annotated[pydantic.SecretStr | None, Field(alias="_sudo_password")] = None
    nearsocket_near: NodeList | None = None
    nearsocket_waivers: tuple[WaiverEntry, ...] = ()
    nearsocket_maintenance: MaintenanceEntry | None = None
    nearsocket_freeze: FreezeEntry | None = None
    nearsocket_serve: ServeEntry | None = None
    nearsocket_replicas: tuple[ReplicaEntry, ...] | None = None
    nearsocket_tune: TuneEntry | None = None
    nearsocket_reserved_cores: Annotated[Whole, Field(ge=0, le=1024)] | None = None
    nearsocket_inventory: Path | None = None
    nearsocket_strict: bool = False
    nearsocket_only: Words = ()
    nearsocket_checks: Paths = ()
    nearsocket_save: Path | None = None
    nearsocket_timeout: Annotated[Number, Field(ge=1, le=3600)] = 60.0
    allow_removals: bool = False
    accept_reload_risk: bool = False
    force: bool = False
    override_freeze: Line | None = None
    keep_engines: bool = False
    lock_wait: Annotated[Number, Field(ge=0, le=3600)] = 60.0
    generation: Annotated[Whole, Field(ge=1)] | None = None
    driver: Line | None = None
    reboot_limit: Annotated[Number, Field(ge=30, le=7200)] = 1200.0
    disturb: bool = False
    resume: bool = False
    anew: bool = False
    accept_unknown: bool = False


def read_data(data: Mapping[str, Any], where: str) -> HostData:
    """The data of one host that an audit uses. Raises UsageError, one line."""
    try:
        return HostData.model_validate(dict(data))
    except pydantic.ValidationError as error:
        raise UsageError(f"{where}: {faults.say(faults.worst(error), HostData)}") from None
