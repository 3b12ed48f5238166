"""Inventories in pyinfra's Python form: read by pyinfra's own loader in a process of its own (see `_read_pyinfra`)."""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from nearsocket.control import _read_pyinfra, schema, settings
from nearsocket.control.inventory import Inventory
from nearsocket.control.serve_schema import ServingKeys
from nearsocket.control.target import Ssh, Sudo, Target, Way, is_host
from nearsocket.control.transport.process import Children, run
from nearsocket.control.waivers import naming
from nearsocket.model import cpulist
from nearsocket.model.errors import UsageError
from nearsocket.model.text import one_line

#: An inventory may ask a cloud for its hosts; one that takes longer hangs.
TIMEOUT_S = 60.0
_LARGEST_BYTES = 64 << 20


def read(path: Path, children: Children | None = None) -> Inventory:
    """The hosts of the inventory, with the data that an audit uses. Raises UsageError, one line, for a broken one."""
    args = [sys.executable, "-P", str(Path(_read_pyinfra.__file__).resolve()), str(path)]
    ended = run(args, b"", TIMEOUT_S, children or Children(), _LARGEST_BYTES, dict(os.environ))
    if ended.code is None:
        raise UsageError(f"{path}: expected an inventory that loads within {TIMEOUT_S:g} s, found one that does not")
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        raise UsageError(
            f"{path}: expected a pyinfra inventory, found one that ended its own process (code {ended.code})"
        ) from None
    if "error" in answer:
        raise UsageError(
            f"{path}: expected a pyinfra inventory, found {one_line(answer['error'], 300)}",
            f"see it whole: pyinfra {path} debug-inventory",
        )
    if not answer["hosts"]:
        raise UsageError(
            f"{path}: expected hosts, found none",
            "an inventory is Python with lists of host names; docs/inventories.md has an example",
        )
    return inventory(answer["hosts"], str(path))


def inventory(hosts: list[dict[str, Any]], where: str) -> Inventory:
    """The inventory that these hosts (name, connector, groups, data) are. Raises UsageError for data of the wrong form."""
    targets: dict[str, Target] = {}
    waivers: dict[schema.WaiverEntry, list[str]] = {}
    for host in hosts:
        if host["connector"] == "ssh" and not is_host(plain_name(host["name"])):
            raise UsageError(
                f"{where}: expected a host name or an address, found {one_line(host['name'], 80)!r}",
                "give the host a plain name and its address as ssh_hostname",
            )
        target, entries = member(host["name"], host["connector"], host["groups"], host["data"], where)
        if target.name in targets:
            raise UsageError(f"{where}: expected each host once, found {target.name!r} twice")
        targets[target.name] = target
        for entry in entries:
            waivers.setdefault(entry, []).append(glob.escape(target.name))
    made = (entry.waiver(entry.host or ",".join(names)) for entry, names in waivers.items())
    return Inventory(tuple(targets.values()), naming(made, targets))


def member(
    name: str, connector: str, groups: list[str], data: Mapping[str, Any], where: str
) -> tuple[Target, tuple[schema.WaiverEntry, ...]]:
    """One host of an inventory, and the waivers in its data. `connector` is `ssh`, `local` or the class of another one."""
    known = schema.read_data(data, f"{where}: host {name}")
    if connector not in ("ssh", "local"):
        raise UsageError(
            f"{where}: host {name}: expected a host that is reached over SSH, or @local, found {connector}",
            "an audit through any other connector: pyinfra INVENTORY deploys/audit.py",
        )
    plain = plain_name(name)
    level = ServingKeys(
        serve=known.nearsocket_serve,
        replicas=known.nearsocket_replicas,
        tune=known.nearsocket_tune,
        reserved_cores=known.nearsocket_reserved_cores,
    )
    serving = any(value is not None for value in (level.serve, level.replicas, level.tune, level.reserved_cores))
    target = Target(
        name=plain,
        way=Way.LOCAL if connector == "local" else Way.SSH,
        ssh=_ssh(plain, known) if connector == "ssh" else None,
        sudo=Sudo(known.sudo_user, _open(known.sudo_password)) if known.sudo else None,
        near=cpulist.parse(known.nearsocket_near) if known.nearsocket_near is not None else None,
        groups=frozenset(groups),
        maintenance=known.nearsocket_maintenance.maintenance() if known.nearsocket_maintenance else None,
        freeze=known.nearsocket_freeze.freeze() if known.nearsocket_freeze else None,
        settings=settings.settings([level], f"{where}: host {plain}") if serving else None,
    )
    return target, known.nearsocket_waivers


def plain_name(name: str) -> str:
    """The host's name without the connector before it."""
    return name.removeprefix("@ssh/").removeprefix("@nearsocket/")


def reached(name: str, data: Mapping[str, Any]) -> Ssh:
    """How pyinfra reaches the host of that name and data. Raises UsageError for data of the wrong form."""
    ours = {key: value for key, value in data.items() if key.startswith("ssh_")}
    return _ssh(plain_name(name), schema.read_data(ours, f"pyinfra data: host {name}"))


def _ssh(name: str, data: schema.HostData) -> Ssh:
    return Ssh(
        hostname=data.ssh_hostname or name,
        user=data.ssh_user,
        port=data.ssh_port,
        key=data.ssh_key,
        key_password=_open(data.ssh_key_password),
        password=_open(data.ssh_password),
        config_file=data.ssh_config_file,
        known_hosts_file=data.ssh_known_hosts_file,
        strict_host_key_checking=data.ssh_strict_host_key_checking,
        connect_timeout_s=data.ssh_connect_timeout,
    )


def _open(secret: pydantic.SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None
