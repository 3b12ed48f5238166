"""The running labs as an inventory: what pyinfra and the audit need to know to reach each machine."""

from __future__ import annotations

import os
from pathlib import Path

from lab import ssh, state
from lab.errors import LabError
from lab.state import LabFolder, LabRecord, MachineRecord


def data(record: LabRecord, machine: MachineRecord) -> dict[str, str | int]:
    """A machine's connection as pyinfra's host data."""
    folder = LabFolder(record.name)
    return {
        "ssh_hostname": "127.0.0.1",
        "ssh_port": machine.port,
        "ssh_user": os.environ.get("NEARSOCKET_LAB_USER", ssh.USERS[0]),
        "ssh_key": str(folder.key),
        "ssh_known_hosts_file": str(folder.known_hosts),
        "ssh_strict_host_key_checking": "yes",
    }


def hosts() -> list[tuple[str, dict[str, str | int]]]:
    """Every machine of every lab that is ready and has its power on."""
    records = [record for record in map(state.read, state.names()) if record and record.ready]
    return [(one.name, data(record, one)) for record in records for one in record.machines if one.powered]


def path() -> Path:
    """The inventory file to hand to pyinfra or the audit: in the project's folder, else in the installed package."""
    project = Path(__file__).resolve().parent.parent
    for candidate in (project / "inventories/lab.py", project / "nearsocket/_data/inventories/lab.py"):
        if candidate.is_file():
            return candidate
    raise LabError(f"expected inventories/lab.py in {project}, found none", "reinstall nearsocket")
