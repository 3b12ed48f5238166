"""`deploys/site.py` and its kin on a machine of a lab, as a person runs them: a fleet file, pyinfra's command, what it said."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab import inventory, ssh
from lab.errors import LabError
from lab.say import clean
from lab.state import LabFolder, LabRecord, MachineRecord

#: The stand-in's "weights"; a folder, as a model is.
MODEL = "/srv/models/stand-in"
_MODEL_SCRIPT = f"mkdir -p {MODEL}; [ -f {MODEL}/weights.bin ] || head -c 30M /dev/zero >{MODEL}/weights.bin; sync"
#: sshd says every command that a connection asks for.
_EXECS = (
    "journalctl --sync; journalctl --quiet --no-pager --boot --output=cat -t sshd -t sshd-session | grep -c '^Starting session: '"
)
#: The words of a run that was refused since a source had no time on a slow machine, or Docker was still starting; it is to be run
#: again, as it says.
_BUSY = ("run it again; a busy host", "run it again once Docker answers")
#: Seconds for reading a machine under emulation, beside others.
_READ_S = 400


@dataclass(frozen=True)
class Ran:
    """One run of a deploy: its exit code, what it said on both outputs without what a terminal obeys, how often it was tried."""

    code: int
    said: str
    tries: int


def prepare(record: LabRecord, machine: MachineRecord) -> None:
    """Have the model's folder on the machine."""
    done = ssh.run(record.name, machine.name, f"set -e; {_MODEL_SCRIPT}")
    if done.returncode:
        raise LabError(f"expected {machine.name} to make {MODEL}, found: {clean(done.stderr)}")


def replicas(**both: Any) -> list[dict[str, Any]]:
    """Two replicas, each on the two GPUs of a socket, with these settings."""
    return [{"name": "a", "gpus": [0, 1], "port": 30000, **both}, {"name": "b", "gpus": [2, 3], "port": 30001, **both}]


def write_fleet(record: LabRecord, machine: MachineRecord, image: str, wanted: list[dict[str, Any]], **host: Any) -> Path:
    """Write a fleet file for that machine beside its disk: the stand-in engine by its digest, these replicas; its path.

    `host`: further keys of the host, and `serve` keys on top of what every replica has.
    """
    folder = LabFolder(record.name)
    serve = {
        "engine": "sglang",
        "image": {"reference": image, "release": "0.5.10", "nccl": "2.28.9", "numactl": True},
        "model": MODEL,
        "host_memory": "400MiB",
        "limits": {"start": "10m", "stop": "30s", "shm": "256MiB"},
        "probe": {"backend": "standin"},
        **host.pop("serve", {}),
    }
    entry = {
        "name": machine.name,
        "address": "127.0.0.1",
        "port": machine.port,
        "user": "root",
        "ssh_key": str(folder.key),
        "ssh_known_hosts_file": str(folder.known_hosts),
        "ssh_config_file": "/dev/null",
        "serve": serve,
        "replicas": wanted,
        **host,
    }
    path = folder.machine(machine.name) / "fleet.yaml"
    path.write_text(yaml.safe_dump({"hosts": [entry]}, sort_keys=False), encoding="utf-8")
    return path


def command(deploy: str, *options: str) -> list[str]:
    """The command line, after `NEARSOCKET_FLEET=FILE`: pyinfra with the inventory that reads fleet files."""
    project = inventory.path().parent.parent
    words = [str(project / "inventories" / "fleet.py"), str(project / "deploys" / deploy), "-y", *options]
    return [sys.executable, "-m", "pyinfra", *words, "--data", f"nearsocket_timeout={_READ_S}"]


def environment(fleet: Path) -> dict[str, str]:
    """The environment of that command; the user's own agent is left out."""
    kept = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    return {**kept, "NEARSOCKET_FLEET": str(fleet)}


def deploy(fleet: Path, name: str = "site.py", *options: str, timeout_s: float = 900.0) -> Ran:
    """Run a deploy with that fleet file; a run that found the machine too busy to be read is repeated, twice at most."""
    for attempt in range(1, 4):
        try:
            done = subprocess.run(
                command(name, *options),
                env=environment(fleet),
                cwd=fleet.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"expected {name} to end within {timeout_s:.0f} s, found it running") from None
        ran = Ran(done.returncode, "\n".join(map(clean, done.stdout.splitlines())), attempt)
        if not any(words in ran.said for words in _BUSY):
            break
    return ran


def counted(record: LabRecord, machine: MachineRecord, fleet: Path, name: str = "site.py", *options: str) -> tuple[Ran, int]:
    """Run a deploy and count, on the machine itself, how many commands its sshd was asked for by that."""
    before = _execs(record, machine)
    ran = deploy(fleet, name, *options)
    return ran, _execs(record, machine) - before - 1  # the counting before it is one that the counting after it sees


def _execs(record: LabRecord, machine: MachineRecord) -> int:
    done = ssh.run(record.name, machine.name, _EXECS)
    if not done.stdout.strip().isdigit():
        raise LabError(f"expected {machine.name}'s journal to say what sshd was asked for, found: {clean(done.stderr)}")
    return int(done.stdout)
