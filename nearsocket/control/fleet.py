"""Fleet YAML: hosts, how to reach them, what runs there, waivers and maintenance; every key is known or refused."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pydantic
import yaml

from nearsocket.control import faults, schema, settings
from nearsocket.control import whole as files
from nearsocket.control.inventory import Inventory
from nearsocket.control.target import Ssh, Sudo, Target, Way
from nearsocket.control.waivers import naming
from nearsocket.model import cpulist
from nearsocket.model.errors import UsageError
from nearsocket.model.text import one_line

#: A fleet file is written by hand; one of this size is something else.
LARGEST_BYTES = 8 << 20


def read(path: Path) -> Inventory:
    """The inventory that the file holds. Raises UsageError, one line that names file, place and the keys that are known."""
    return _inventory(path, load(path))


def load(path: Path) -> schema.Fleet:
    """The file as it was written, every key known. Raises UsageError as `read` does, OSError where it cannot be read."""
    text = files.data(path, "a fleet file", LARGEST_BYTES)
    node, twice, whole = _parsed(path, text)
    if twice is not None:
        raise UsageError(
            f"{path}:{twice.start_mark.line + 1}: expected each key once, found {one_line(str(twice.value), 80)!r} twice"
        )
    if not isinstance(whole, dict):
        raise UsageError(
            f"{path}: expected a mapping with `hosts`, found {faults.kind(whole)}", "docs/inventories.md has an example"
        )
    try:
        return schema.Fleet.model_validate(whole)
    except pydantic.ValidationError as error:
        fault = faults.worst(error)
        line = _line(node, list(fault["loc"]))
        raise UsageError(f"{path}{f':{line}' if line else ''}: {faults.say(fault, schema.Fleet)}") from None


def _parsed(path: Path, text: bytes) -> tuple[yaml.Node | None, yaml.Node | None, Any]:
    """The text as YAML's nodes, the first key that stands twice, and the values. Raises UsageError."""
    node = None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return node, _double_key(node), yaml.safe_load(text)
    except yaml.reader.ReaderError as error:
        raise UsageError(f"{path}: expected YAML, found a character that no text has, at position {error.position}") from None
    except RecursionError:
        raise UsageError(f"{path}: expected YAML, found a text that is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        broken = None if isinstance(error, yaml.YAMLError) else _valueless(node)
        if broken is not None:
            raise UsageError(f"{path}:{broken}") from None
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}" if mark else "the text"
        what = getattr(error, "problem", None) or error
        raise UsageError(f"{path}: expected YAML, found at {place}: {one_line(str(what), 200)}") from None


def _inventory(path: Path, fleet: schema.Fleet) -> Inventory:
    seen: set[str] = set()
    for host in fleet.hosts:
        if host.name in seen:
            raise UsageError(f"{path}: expected each host once, found {host.name!r} twice")
        seen.add(host.name)
    waivers = [entry.waiver(entry.host or "*") for entry in fleet.waivers]
    for host in fleet.hosts:
        waivers += [entry.waiver(glob.escape(host.name)) for entry in host.waivers]
    targets = tuple(_target(path, host, fleet) for host in fleet.hosts)
    _apart(path, targets)
    return Inventory(targets, naming(waivers, seen))


def _apart(path: Path, targets: tuple[Target, ...]) -> None:
    """Raises UsageError where two entries are one machine: each would undo what the other wants."""
    first: dict[tuple[object, ...], Target] = {}
    for target in targets:
        if target.ssh is None:
            continue
        ssh, port = target.ssh, target.ssh.port or 22
        other = first.setdefault((ssh.hostname.lower(), port, ssh.config_file), target)
        if other is not target:
            found = f"{one_line(ssh.hostname, 80)} port {port} as {other.name!r} and as {target.name!r}"
            raise UsageError(
                f"{path}: expected each machine once, found {found}",
                "one entry with all its replicas; or each its own address or port",
            )


def _target(path: Path, host: schema.HostEntry, fleet: schema.Fleet) -> Target:
    """The host's target."""
    levels = levels_of(fleet, host)

    def value(key: str) -> Any:
        return nearest(levels, key)

    sudo, near, freeze = value("sudo"), value("near"), value("freeze") or fleet.freeze
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
        sudo=Sudo(sudo.user) if isinstance(sudo, schema.SudoEntry) else Sudo() if sudo else None,
        near=cpulist.parse(near) if near is not None else None,
        groups=frozenset(host.groups),
        maintenance=host.maintenance.maintenance() if host.maintenance else None,
        freeze=freeze.freeze() if freeze else None,
        settings=settings.settings(levels, f"{path}: host {host.name}"),
    )


def levels_of(fleet: schema.Fleet, host: schema.HostEntry) -> tuple[schema.Level, ...]:
    """Who may say something for that host, the farthest first: defaults, its groups in its own order, the host itself."""
    return (fleet.defaults, *(fleet.groups[name] for name in host.groups if name in fleet.groups), host)


def nearest(levels: Sequence[schema.Level], key: str) -> Any:
    """The value of the nearest level that says one; None where none does."""
    return next((found for level in reversed(levels) if (found := getattr(level, key)) is not None), None)


def _valueless(node: yaml.Node | None) -> str | None:
    """Line, key, and what was expected there: the first plain word that looks like a value and is none, such as 2026-13-45."""
    for key, scalar in _scalars(node):
        try:
            yaml.constructor.SafeConstructor().construct_object(scalar)
        except ValueError:
            expected = schema.A_DAY if scalar.tag.endswith(":timestamp") else "a value that can be read"
            where = f"{key}: " if key else ""
            return f"{scalar.start_mark.line + 1}: {where}expected {expected}, found {one_line(scalar.value, 80)!r}"
    return None


def _scalars(node: yaml.Node | None) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """Every plain value below the node once, in the file's order, with its nearest key; an alias may lead round in a ring."""
    open_nodes, seen = [("", node)], set()
    while open_nodes:
        key, at = open_nodes.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, yaml.ScalarNode):
            yield key, at
        elif isinstance(at, yaml.SequenceNode):
            open_nodes += [(key, inner) for inner in reversed(at.value)]
        elif isinstance(at, yaml.MappingNode):
            for name, inner in reversed(at.value):
                open_nodes += [(one_line(str(getattr(name, "value", "")), 80), inner), (key, name)]


def _double_key(node: yaml.Node | None) -> yaml.Node | None:
    """The first key that its mapping has already; YAML's reader would take the last one's value and say nothing."""
    open_nodes, seen = [node] if node is not None else [], set()
    found: list[yaml.Node] = []
    while open_nodes:
        at = open_nodes.pop()
        if id(at) in seen:  # an alias
            continue
        seen.add(id(at))
        if isinstance(at, yaml.MappingNode):
            keys = set()
            for key, value in at.value:
                if isinstance(key, yaml.ScalarNode):
                    found += [key] if key.value in keys else []
                    keys.add(key.value)
                open_nodes += [key, value]
        elif isinstance(at, yaml.SequenceNode):
            open_nodes += at.value
    return min(found, key=lambda key: key.start_mark.index, default=None)


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
