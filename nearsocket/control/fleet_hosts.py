"""A fleet file as pyinfra's inventory: `hosts = inventory_hosts("fleet.yaml")` is all that an inventory in Python needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nearsocket.control import fleet, schema, settings
from nearsocket.control.serve_schema import said
from nearsocket.model.errors import NearsocketError

#: Data of pyinfra's SSH to keys of a fleet file.
_REACH = {
    "ssh_user": "user",
    "ssh_port": "port",
    "ssh_key": "ssh_key",
    "ssh_config_file": "ssh_config_file",
    "ssh_known_hosts_file": "ssh_known_hosts_file",
    "ssh_strict_host_key_checking": "ssh_strict_host_key_checking",
    "ssh_connect_timeout": "ssh_connect_timeout",
    "nearsocket_near": "near",
    "nearsocket_reserved_cores": "reserved_cores",
}


def fleet_hosts(path: str | Path) -> list[tuple[str, dict[str, Any]]]:
    """Every host of the file with its data, defaults and groups merged in as `nearsocket plan` merges them.

    A relative path is meant from the current directory. Host keys are checked strictly where the file says nothing. Raises
    UsageError, one line that names file and place; OSError where the file cannot be read.
    """
    path = Path(path).resolve()
    whole = fleet.load(path)
    fleet.read(path)  # what only shows when levels are merged
    return [_host(path, whole, host) for host in whole.hosts]


def inventory_hosts(path: str | Path) -> list[tuple[str, dict[str, Any]]]:
    """`fleet_hosts` where pyinfra runs the inventory. Raises SystemExit with the one line; pyinfra would show a traceback."""
    try:
        return fleet_hosts(path)
    except NearsocketError as error:
        raise SystemExit(f"nearsocket: {error.message}" + (f"\n  {error.hint}" if error.hint else "")) from None
    except OSError as error:
        raise SystemExit(f"nearsocket: {path}: expected a fleet file, found: {error.strerror or error}") from None


def _host(path: Path, whole: schema.Fleet, host: schema.HostEntry) -> tuple[str, dict[str, Any]]:
    levels = fleet.levels_of(whole, host)
    data: dict[str, Any] = {name: fleet.nearest(levels, key) for name, key in _REACH.items()}
    data["ssh_hostname"] = host.address or host.name
    data["ssh_strict_host_key_checking"] = data["ssh_strict_host_key_checking"] or "yes"
    sudo = fleet.nearest(levels, "sudo")
    data["_sudo"] = None if sudo is None else bool(sudo)
    data["_sudo_user"] = sudo.user if isinstance(sudo, schema.SudoEntry) else None
    serve: dict[str, Any] = {}
    tune: dict[str, Any] = {}
    for level in levels:
        serve, tune = settings.merge(serve, said(level.serve)), settings.merge(tune, said(level.tune))
    data |= {"nearsocket_serve": serve or None, "nearsocket_tune": tune or None}
    replicas = fleet.nearest(levels, "replicas")
    data["nearsocket_replicas"] = None if replicas is None else [_replica(said(replica)) for replica in replicas]
    data["nearsocket_waivers"] = [entry.model_dump(mode="json") for entry in (*whole.waivers, *host.waivers)] or None
    data["nearsocket_maintenance"] = host.maintenance.model_dump(mode="json") if host.maintenance else None
    data["nearsocket_inventory"] = str(path)
    kept = {key: value for key, value in data.items() if value is not None}
    return ("@local" if host.local else host.name), kept


def _replica(words: dict[str, Any]) -> dict[str, Any]:
    """A replica's words as they may be said again: no GPU named is `auto`."""
    return {**words, "gpus": words.get("gpus") or "auto"}
