"""What is running: one folder for each lab with its keys, its machines and one record, gone when the lab goes down."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lab.errors import LabError
from lab.folders import state_folder

SCHEMA = 1

NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class MachineRecord:
    """One machine: name, SSH port, the identity its process carries in its arguments, and whether its power was cut."""

    name: str
    port: int
    uuid: str
    powered: bool = True


@dataclass(frozen=True)
class LabRecord:
    """One lab: its machines are alike. `image` is the digest of the image their disks rest on; `ready` says that all booted."""

    name: str
    shape: str
    profile: str
    image: str
    accel: str
    machines: tuple[MachineRecord, ...]
    ready: bool = False

    def machine(self, name: str) -> MachineRecord:
        """The machine of that name; LabError where there is none."""
        for machine in self.machines:
            if machine.name == name:
                return machine
        raise LabError(
            f"expected a machine of lab {self.name}, found {name!r}", f"it has {', '.join(m.name for m in self.machines)}"
        )

    def with_machine(self, changed: MachineRecord) -> LabRecord:
        """The record with one machine replaced."""
        return replace(self, machines=tuple(changed if m.name == changed.name else m for m in self.machines))


@dataclass(frozen=True)
class LabFolder:
    """Where a lab keeps its files."""

    name: str

    @property
    def path(self) -> Path:
        """The lab's folder."""
        return state_folder() / self.name

    @property
    def lock(self) -> Path:
        """The lock that a changing command holds; beside the folder, so that it outlives it."""
        return state_folder() / f"{self.name}.lock"

    @property
    def key(self) -> Path:
        """The private key for SSH."""
        return self.path / "key"

    @property
    def host_key(self) -> Path:
        """The private host key that all machines of the lab have."""
        return self.path / "host_key"

    @property
    def known_hosts(self) -> Path:
        """The host keys, as ssh checks them."""
        return self.path / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """The configuration for ssh and for what speaks SSH."""
        return self.path / "ssh_config"

    def machine(self, name: str) -> Path:
        """A machine's own folder: disk, initrd, console, sockets."""
        return self.path / name


def check_name(name: str) -> str:
    """The name if it can be a host's and a file's name; LabError otherwise."""
    if not NAME.fullmatch(name):
        raise LabError(f"expected a name of a-z, 0-9 and hyphens, found {name!r}", "for example: lab")
    return name


def machine_names(lab: str, hosts: int) -> tuple[str, ...]:
    """One machine is called as its lab, several get a number: lab-1, lab-2."""
    return (lab,) if hosts == 1 else tuple(f"{lab}-{number}" for number in range(1, hosts + 1))


def write(record: LabRecord) -> None:
    """Write a lab's record; a reader sees the old one or the new one."""
    path = LabFolder(record.name).path / "lab.json"
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1), encoding="utf-8")
    fresh.replace(path)


def parse(text: str) -> LabRecord | None:
    """A record from its text; None where the text is not one (cut off, of another version)."""
    try:
        data = json.loads(text)
        if data.pop("schema") != SCHEMA:
            return None
        machines = tuple(MachineRecord(**machine) for machine in data.pop("machines"))
        return LabRecord(**data, machines=machines)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def read(name: str) -> LabRecord | None:
    """A lab's record; None where there is no lab of that name or its record is broken."""
    try:
        return parse((LabFolder(name).path / "lab.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None


def names() -> list[str]:
    """The names of all labs that have a folder, sorted."""
    folder = state_folder()
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and NAME.fullmatch(entry.name))


def find_machine(name: str) -> tuple[LabRecord, MachineRecord]:
    """The machine of that name in any lab; LabError says what there is."""
    there: list[str] = []
    for lab in names():
        record = read(lab)
        for machine in record.machines if record else ():
            if record and machine.name == name:
                return record, machine
            there.append(machine.name)
    hint = f"there is {', '.join(there)}" if there else "none is up: nearsocket lab up"
    raise LabError(f"expected a lab machine called {name}, found none", hint)
