"""Fleet YAML: hosts, how to reach them, waivers and maintenance; every key is known or refused."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import pydantic
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from nearsocket.control.inventory import Inventory
from nearsocket.control.target import Ssh, Sudo, Target, Way
from nearsocket.control.waivers import Waiver
from nearsocket.model import cpulist
from nearsocket.model.errors import UsageError
from nearsocket.model.report import Maintenance
from nearsocket.model.text import one_line

#: A fleet file is written by hand; one of this size is something else.
LARGEST_BYTES = 8 << 20


def _node_list(text: str) -> str:
    cpulist.parse(text)
    return text


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.%:-]*", name):
        raise ValueError(f"expected a host name or an address, found {name!r}")
    return name


NodeList = Annotated[str, AfterValidator(_node_list)]
Name = Annotated[str, Field(min_length=1), AfterValidator(_plain_name)]
Line = Annotated[str, Field(min_length=1, max_length=300)]


class Strict(BaseModel):
    """A mapping that knows its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class MaintenanceEntry(Strict):
    """`maintenance: {until, reason}` of a host."""

    until: datetime.date
    reason: Line


class WaiverEntry(Strict):
    """One of `waivers`; a host's own needs no `host`."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*\.[a-z0-9]+(-[a-z0-9]+)*$")]
    host: Line = "*"
    reason: Line
    owner: Line
    expires: datetime.date


class SudoEntry(Strict):
    """`sudo` in its long form. The password is never here: NEARSOCKET_SUDO_PASSWORD or a prompt."""

    user: Name | None = None
    login: bool = False


class Reach(Strict):
    """What `defaults` and each host may say."""

    user: Name | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    ssh_key: Line | None = None
    ssh_config_file: Line | None = None
    ssh_known_hosts_file: Line | None = None
    ssh_strict_host_key_checking: Annotated[str, Field(pattern="^(yes|accept-new)$")] | None = None
    ssh_connect_timeout: Annotated[float, Field(gt=0, le=600)] | None = None
    sudo: bool | SudoEntry | None = None
    near: NodeList | None = None


class HostEntry(Reach):
    """One host."""

    name: Name
    address: Name | None = None
    local: bool = False
    groups: tuple[Name, ...] = ()
    waivers: tuple[WaiverEntry, ...] = ()
    maintenance: MaintenanceEntry | None = None


class Fleet(Strict):
    """The whole file."""

    defaults: Reach = Reach()
    hosts: Annotated[tuple[HostEntry, ...], Field(min_length=1)]
    waivers: tuple[WaiverEntry, ...] = ()


def read(path: Path) -> Inventory:
    """The inventory that the file holds. Raises UsageError, one line that names file, place and the keys that are known."""
    with path.open("rb") as stream:
        text = stream.read(LARGEST_BYTES + 1)
    if len(text) > LARGEST_BYTES:
        raise UsageError(f"{path}: expected a fleet file of at most {LARGEST_BYTES >> 20} MiB, found a larger one")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        whole = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark else "the text"
        what = getattr(error, "problem", None) or type(error).__name__
        raise UsageError(f"{path}: expected YAML, found at {place}: {one_line(str(what), 200)}") from None
    if not isinstance(whole, dict):
        raise UsageError(f"{path}: expected a mapping with `hosts`, found {type(whole).__name__}", "docs/inventories.md has an example")
    try:
        fleet = Fleet.model_validate(whole)
    except pydantic.ValidationError as error:
        raise UsageError(_say(path, error.errors(include_url=False)[0], node)) from None
    return _inventory(path, fleet)


def _inventory(path: Path, fleet: Fleet) -> Inventory:
    seen: set[str] = set()
    for host in fleet.hosts:
        if host.name in seen:
            raise UsageError(f"{path}: expected each host once, found {host.name!r} twice")
        seen.add(host.name)
    waivers = [_waiver(entry, entry.host) for entry in fleet.waivers]
    for host in fleet.hosts:
        waivers += [_waiver(entry, host.name) for entry in host.waivers]
    return Inventory(tuple(_target(host, fleet.defaults) for host in fleet.hosts), tuple(waivers))


def _waiver(entry: WaiverEntry, host: str) -> Waiver:
    return Waiver(entry.id, host, entry.reason, entry.owner, entry.expires)


def _target(host: HostEntry, defaults: Reach) -> Target:
    def value(key: str) -> Any:
        own = getattr(host, key)
        return getattr(defaults, key) if own is None else own

    sudo = value("sudo")
    near = value("near")
    maintenance = host.maintenance and Maintenance(host.maintenance.until.isoformat(), host.maintenance.reason)
    ssh = Ssh(
        hostname=host.address or host.name,
        user=value("user"),
        port=value("port"),
        key=value("ssh_key"),
        config_file=value("ssh_config_file"),
        known_hosts_file=value("ssh_known_hosts_file"),
        strict_host_key_checking=value("ssh_strict_host_key_checking"),
        connect_timeout_s=value("ssh_connect_timeout"),
    )
    return Target(
        name=host.name,
        way=Way.LOCAL if host.local else Way.SSH,
        ssh=None if host.local else ssh,
        sudo=Sudo(sudo.user, sudo.login) if isinstance(sudo, SudoEntry) else Sudo() if sudo else None,
        near=cpulist.parse(near) if near is not None else None,
        groups=frozenset(host.groups),
        maintenance=maintenance,
    )


def _say(path: Path, error: Any, node: yaml.Node | None) -> str:
    """pydantic's first complaint as one line: where, what was expected, what was found, what it may have meant."""
    steps = [step for step in error["loc"] if not (isinstance(step, str) and step in ("bool", "SudoEntry"))]
    place = ".".join(str(step) for step in steps) or "the file"
    line = _line(node, steps)
    where = f"{path}:{line}" if line else str(path)
    found = one_line(repr(error.get("input")), 80)
    if error["type"] == "extra_forbidden":
        known = sorted(_keys(steps[:-1]))
        close = difflib.get_close_matches(str(steps[-1]), known, 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        return f"{where}: {place}: expected one of {', '.join(known)}, found {str(steps[-1])!r}{meant}"
    if error["type"] == "missing":
        return f"{where}: expected {steps[-1]!r} in {'.'.join(str(step) for step in steps[:-1]) or 'the file'}, found none"
    return f"{where}: {place}: {_lower(error['msg'])}, found {found}"


def _lower(message: str) -> str:
    message = message.removeprefix("Value error, ")
    message = re.sub(r"^(Input|String|Value) should (be|match|have) ", lambda match: "expected " if match[2] == "be" else f"expected to {match[2]} ", message)
    return one_line(message, 200)


def _keys(steps: Iterable[Any]) -> Iterable[str]:
    """The keys that are known at that place."""
    steps = [step for step in steps if isinstance(step, str)]
    model: type[BaseModel] = {
        (): Fleet,
        ("defaults",): Reach,
        ("hosts",): HostEntry,
    }.get(tuple(steps), HostEntry)
    if steps:
        model = {"waivers": WaiverEntry, "maintenance": MaintenanceEntry, "sudo": SudoEntry}.get(steps[-1], model)
    return model.model_fields


def _line(node: yaml.Node | None, steps: list[Any]) -> int | None:
    """The line (from 1) of the place in the file, as far down as the file goes."""
    line: int | None = None
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if getattr(key, "value", None) == str(step)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line
