"""A private sshd on loopback with keys, certificates and a log of its own, ended by its process id."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearsocket.control.target import Ssh

USER = getpass.getuser()


class Server:
    """One running sshd: port, host key and log; `ssh()` are settings that may log in."""

    def __init__(self, folder: Path, keys: Keys, options: str) -> None:
        sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        assert sshd, (
            "expected sshd on this machine, found none; install it (apt-get install openssh-server), these tests need a real one"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own condition as root
        folder.mkdir(parents=True)
        self.folder, self.keys, self.log = folder, keys, folder / "log"
        self.host_key = keygen(folder / "host_key")
        self.port = _free_port()
        self.known_hosts = folder / "known_hosts"
        self.trust(self.host_key)
        config = folder / "sshd_config"
        config.write_text(
            f"""Port {self.port}
ListenAddress 127.0.0.1
HostKey {self.host_key}
PidFile none
AuthorizedKeysFile {keys.authorized}
TrustedUserCAKeys {keys.authority}.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
{options}
"""
        )
        subprocess.run([sshd, "-t", "-f", config], check=True, stderr=subprocess.DEVNULL)
        self.command = [sshd, "-D", "-e", "-f", str(config)]
        self.start()

    def start(self) -> None:
        """Listen, for the first time or again on the same port."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self._await()

    def _await(self) -> None:
        for _ in range(200):
            if b"Server listening" in self.log.read_bytes():
                return
            assert self.process.poll() is None, f"sshd ended: {self.log.read_text()}"
            time.sleep(0.02)
        raise AssertionError(f"sshd does not listen: {self.log.read_text()}")

    def trust(self, host_key: Path) -> None:
        """Make that key the one that known_hosts has for this server."""
        kind, key = host_key.with_suffix(".pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def ssh(self, **changes: object) -> Ssh:
        """Settings that log in with the user's key and nothing from this machine's own ~/.ssh."""
        settings: dict[str, object] = {
            "hostname": "127.0.0.1",
            "user": USER,
            "port": self.port,
            "key": str(self.keys.user),
            "config_file": "/dev/null",
            "known_hosts_file": str(self.known_hosts),
        }
        return Ssh(**{**settings, **changes})  # type: ignore[arg-type]

    def sessions(self) -> list[str]:
        """What its log says of sessions and channels that were asked for: exec, shell, subsystem."""
        return re.findall(r"Starting session: (\S+)", self.log.read_text())

    def connections(self) -> int:
        """How many connections its log has."""
        return self.log.read_text().count("Connection from ")

    def stop(self) -> None:
        """End it and what its sessions left behind, by id."""
        for file in self.folder.glob("*.pid"):
            _end(int(file.read_text()))
        self.process.terminate()
        self.process.wait(5)


class Keys:
    """A user's key that servers accept, a certificate authority that they trust, a key that nobody knows."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.user, self.stranger = keygen(folder / "user"), keygen(folder / "stranger")
        self.authority, self.certified = keygen(folder / "authority"), keygen(folder / "certified")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_text(self.user.with_suffix(".pub").read_text())
        quietly("ssh-keygen", "-q", "-s", self.authority, "-I", "test", "-n", USER, "-V", "+1d", self.certified.with_suffix(".pub"))


def keygen(path: Path) -> Path:
    """A new key without a passphrase."""
    quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path)
    return path


def quietly(*args: str | Path) -> None:
    """Run a tool that must succeed."""
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def serving(folder: Path, keys: Keys, options: str = "") -> Iterator[Server]:
    """A server while the block runs."""
    server = Server(folder, keys, options)
    try:
        yield server
    finally:
        server.stop()


def wrapper(folder: Path, body: str) -> str:
    """The sshd option that runs each command ($SSH_ORIGINAL_COMMAND) through a script: a login shell's stand-in."""
    return f"ForceCommand {script(folder / 'shell', body)}"


def script(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
