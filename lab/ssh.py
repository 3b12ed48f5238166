"""SSH into a lab's machines: keys and a configuration made for this lab alone, host keys checked strictly."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.errors import LabError
from lab.say import clean
from lab.state import LabFolder, LabRecord

#: Users of the guest that take the lab's key: root, one with sudo, one without.
USERS = ("root", "ops", "visitor")


def make_keys(folder: LabFolder) -> None:
    """Make the lab's user key and host key."""
    for path in (folder.key, folder.host_key):
        done = subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "nearsocket-lab", "-f", str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise LabError(f"expected ssh-keygen to make {path}, found: {clean(done.stderr or done.stdout)}")


def public(path: Path) -> str:
    """The public half of a key, without its comment."""
    return " ".join(path.with_name(path.name + ".pub").read_text(encoding="utf-8").split()[:2])


def known_hosts_text(record: LabRecord, host_key: str) -> str:
    """The known_hosts file: each machine under its name and under address and port (what programs without HostKeyAlias look up)."""
    return "".join(f"{machine.name},[127.0.0.1]:{machine.port} {host_key}\n" for machine in record.machines)


def quoted(path: Path) -> str:
    """A path as ssh_config takes it: blanks need quotes, a percent sign is doubled."""
    text = str(path).replace("%", "%%")
    return f'"{text}"'


def config_text(record: LabRecord, folder: LabFolder) -> str:
    """The ssh_config file: one block a machine."""
    blocks = [
        f"""Host {machine.name}
    HostName 127.0.0.1
    Port {machine.port}
    User root
    IdentityFile {quoted(folder.key)}
    IdentitiesOnly yes
    IdentityAgent none
    HostKeyAlias {machine.name}
    HostKeyAlgorithms ssh-ed25519
    UserKnownHostsFile {quoted(folder.known_hosts)}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    ConnectTimeout 90
    ServerAliveInterval 15
    ServerAliveCountMax 8
    ControlMaster no
    ControlPath none
    LogLevel ERROR
"""
        for machine in record.machines
    ]
    return f"# Written by `nearsocket lab up`; gone with `nearsocket lab down {record.name}`.\n" + "\n".join(blocks)


def write_config(record: LabRecord) -> None:
    """Write known_hosts and ssh_config for the lab as it is recorded."""
    folder = LabFolder(record.name)
    folder.known_hosts.write_text(known_hosts_text(record, public(folder.host_key)), encoding="utf-8")
    folder.ssh_config.write_text(config_text(record, folder), encoding="utf-8")


def command(lab: str, machine: str, remote: Sequence[str], user: str = "root", options: Sequence[str] = ()) -> list[str]:
    """The ssh command line that runs `remote` (joined by blanks, as ssh does) on a machine."""
    return ["ssh", "-F", str(LabFolder(lab).ssh_config), "-l", user, *options, machine, *remote]


def run(
    lab: str, machine: str, script: str, user: str = "root", timeout_s: float = 120.0, feed: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a shell script on a machine and return what it said; LabError where it takes longer than `timeout_s`."""
    argv = command(lab, machine, [script], user, ("-o", "BatchMode=yes"))
    given: dict[str, object] = {"input": feed} if feed is not None else {"stdin": subprocess.DEVNULL}
    try:
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            argv, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False, **given
        )
    except subprocess.TimeoutExpired:
        raise LabError(
            f"expected {machine} to answer within {timeout_s:.0f} s, found nothing", f"nearsocket lab logs {machine}"
        ) from None


def answers(port: int, wait_s: float = 2.0) -> bool:
    """Whether an SSH server greets on the port; the emulator accepts connections long before the guest does."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as link:
            link.settimeout(wait_s)
            return link.recv(4) == b"SSH-"
    except OSError:
        return False


def authorized_keys(folder: LabFolder) -> bytes:
    """The guest's authorized_keys."""
    return (public(folder.key) + "\n").encode()
