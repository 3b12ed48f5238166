"""pyinfra's own SSH as the transport: for hosts with `ssh_password`, and in pyinfra runs, where the connection is open already."""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path
from typing import Any

from nearsocket.control.target import Ssh
from nearsocket.control.transport import LARGEST_ANSWER_BYTES, Answer, Transport, TransportError, Trouble, reasons
from nearsocket.control.transport.openssh import DEFAULT_CONNECT_TIMEOUT_S, answer
from nearsocket.control.transport.process import Children, Ended
from nearsocket.model.text import one_line

_CHUNK_BYTES = 1 << 15
_STDERR_CAP_BYTES = 64 << 10


class PyinfraSsh(Transport):
    """One host through the connector `@nearsocket`, connected for this one command."""

    def __init__(self, ssh: Ssh) -> None:
        self.ssh = ssh

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        """Run the command once. Raises TransportError, one line, where there is no answer."""
        began = time.monotonic()
        connector = self._connector(timeout_s)
        try:
            self._connect(connector)
            left_s = timeout_s - (time.monotonic() - began)
            found = execute(connector.client.get_transport(), command, stdin, left_s, children, self.ssh)
            return Answer(found.stdout, found.stderr, time.monotonic() - began)
        finally:
            if connector.client is not None:
                connector.client.close()

    def _connector(self, timeout_s: float) -> Any:
        """pyinfra's own objects around one host, with its `ssh_*` data."""
        from pyinfra.api.config import Config
        from pyinfra.api.inventory import Inventory
        from pyinfra.api.state import State

        from nearsocket.control.connector import NearsocketConnector

        logging.getLogger("pyinfra").addHandler(logging.NullHandler())  # its warnings come back as one line here
        ssh = self.ssh
        inventory = Inventory(([(ssh.hostname, host_data(ssh))], {}))
        connect_s = max(1, round(min(ssh.connect_timeout_s or DEFAULT_CONNECT_TIMEOUT_S, timeout_s)))
        state = State(inventory, Config(CONNECT_TIMEOUT=connect_s))
        return NearsocketConnector(state, next(iter(inventory)))

    def _connect(self, connector: Any) -> None:
        from pyinfra.api.exceptions import PyinfraError

        try:
            connector.connect()
        except (PyinfraError, OSError) as error:
            raise connect_error(str(error), self.ssh) from None


def host_data(ssh: Ssh) -> dict[str, Any]:
    """pyinfra's `ssh_*` data of a host: what is not said is left out."""
    data = {
        "ssh_hostname": ssh.hostname,
        "ssh_user": ssh.user,
        "ssh_port": ssh.port,
        "ssh_key": ssh.key,
        "ssh_key_password": ssh.key_password,
        "ssh_password": ssh.password,
        "ssh_config_file": ssh.config_file,
        "ssh_known_hosts_file": ssh.known_hosts_file,
        "ssh_strict_host_key_checking": ssh.strict_host_key_checking,
    }
    return {key: value for key, value in data.items() if value is not None}


#: A piece of pyinfra's or paramiko's text, the trouble, and what to do.
_CONNECT = (
    ("could not resolve", Trouble.RESOLVE, "look for a slip in the name or in the inventory"),
    (
        "does not match",
        Trouble.HOST_KEY_CHANGED,
        "someone may be in between; where the host was installed anew, put the new key into known_hosts",
    ),
    ("strictpolicy", Trouble.HOST_KEY_UNKNOWN, "verify the key by another way and add it to known_hosts"),
    (
        "authentication",
        Trouble.DENIED,
        "look at user and ssh_key in a fleet file, at ssh_user, ssh_key and ssh_password in an inventory in Python",
    ),
    ("refused", Trouble.REFUSED, "look whether sshd runs there and listens on that port"),
    ("unable to connect", Trouble.REFUSED, "look whether sshd runs there and listens on that port"),
    ("timed out", Trouble.UNREACHABLE, "look whether the host is up, at the route and the firewall"),
    ("unreachable", Trouble.UNREACHABLE, "look at the address, the route and the firewall"),
    ("no route", Trouble.UNREACHABLE, "look at the address, the route and the firewall"),
)


def connect_error(text: str, ssh: Ssh) -> TransportError:
    """The error that pyinfra's words about a failed connection mean; the host's own files are looked at where they may be why."""
    words = one_line(text, 300)
    fault = _key_fault(words, ssh) or _known_hosts_fault(words, ssh)
    if fault is not None:
        return fault
    for piece, trouble, hint in _CONNECT:
        if piece in words.lower():
            return TransportError(trouble, f"expected an SSH login, found: {words}", hint, words)
    hint = f"try it by hand: {reasons.by_hand(ssh)} true"
    return TransportError(Trouble.SSH, f"expected an SSH login, found: {words}", hint, words)


def _key_fault(words: str, ssh: Ssh) -> TransportError | None:
    """Where the private key is what the connection failed at: pyinfra calls a folder "no such file" too."""
    low = words.lower()
    if ssh.key is None or not ("private key file" in low or ("errno" in low and ssh.key in words)):
        return None
    if "encrypted" in low:
        found = "one that is encrypted"
        hint = "load it with ssh-add and leave ssh_key out, or set ssh_key_password in an inventory in Python"
    else:
        found = _instead(ssh.key) or ("one that cannot be read" if "errno" in low else "another file")
        hint = "mend the path at ssh_key in the inventory; it names the private key, and ~ is the home folder"
    return TransportError(Trouble.SSH, f"expected a private key at {one_line(ssh.key, 200)}, found {found}", hint, words)


def _known_hosts_fault(words: str, ssh: Ssh) -> TransportError | None:
    """Where the inventory's file of host keys is none: pyinfra goes on without it, and then no key is known."""
    if ssh.known_hosts_file is None or not ("strictpolicy" in words.lower() or ssh.known_hosts_file in words):
        return None
    found = _instead(ssh.known_hosts_file)
    if found is None:
        return None
    message = f"expected host keys in {one_line(ssh.known_hosts_file, 200)}, found {found}"
    hint = "mend the path at ssh_known_hosts_file in the inventory, or make that file with the key, verified by another way"
    return TransportError(Trouble.HOST_KEY_UNKNOWN, message, hint, words)


def _instead(name: str) -> str | None:
    """What is there instead of a file; None where one is."""
    path = Path(name).expanduser()
    try:
        return "a folder" if path.is_dir() else None if path.exists() else "no such file"
    except OSError as error:
        return error.strerror or "none that can be looked at"


def execute(transport: Any, command: str, stdin: bytes, timeout_s: float, children: Children, ssh: Ssh) -> Answer:
    """Run the command on an open paramiko transport, in one exec. Raises TransportError, one line, where there is no answer."""
    import paramiko

    began = time.monotonic()
    try:
        channel = transport.open_session(timeout=max(0.1, timeout_s))
        try:
            channel.exec_command(command)
            talk = _Talk(channel, stdin)
            finished = talk.until(began + timeout_s, children)
            code = channel.recv_exit_status() if finished and not talk.overflow else None
        finally:
            channel.close()
    except (paramiko.SSHException, OSError, EOFError) as error:
        if isinstance(error, socket.timeout):
            raise reasons.timed_out(timeout_s, False, "") from None
        words = one_line(str(error) or type(error).__name__, 200)
        raise TransportError(
            Trouble.UNREACHABLE, f"expected an answer, found that the connection broke off ({words})", "look at the host's log"
        ) from None
    if code == -1:  # paramiko's word for an end without a code: a signal, or the connection went
        raise reasons.explain(reasons.SSH_FAILED, "", ssh)
    return answer(Ended(code, bytes(talk.stdout), bytes(talk.stderr), talk.overflow, time.monotonic() - began), timeout_s, ssh)


class _Talk:
    """Feeds a channel and reads it in turns, so that neither side waits for the other."""

    def __init__(self, channel: Any, stdin: bytes) -> None:
        self.channel, self.pending = channel, memoryview(stdin)
        self.stdout, self.stderr, self.overflow = bytearray(), bytearray(), False

    def until(self, deadline: float, children: Children) -> bool:
        """Talk until the command has ended and is read; False at the deadline, an interrupt, or where it says too much."""
        channel = self.channel
        channel.settimeout(0.1)
        while time.monotonic() < deadline and not children.closed and not self.overflow:
            self._write()
            moved = self._read()
            if channel.exit_status_ready() and not channel.recv_ready() and not channel.recv_stderr_ready() and not moved:
                return True
        return False

    def _write(self) -> None:
        if not self.pending:
            return
        try:
            self.pending = self.pending[self.channel.send(bytes(self.pending[:_CHUNK_BYTES])) :]
        except TimeoutError:
            return
        except OSError:
            self.pending = self.pending[:0]  # it ended without reading on; its code and words say why
        if not self.pending:
            self.channel.shutdown_write()

    def _read(self) -> bool:
        """Whether anything came."""
        moved = False
        while self.channel.recv_stderr_ready():
            chunk = self.channel.recv_stderr(_CHUNK_BYTES)
            self.stderr += chunk[: _STDERR_CAP_BYTES - len(self.stderr)]
            moved = True
        if self.pending and not self.channel.recv_ready():
            return moved
        try:
            chunk = self.channel.recv(_CHUNK_BYTES)
        except TimeoutError:
            return moved
        if not chunk:
            self.channel.status_event.wait(0.05)  # its output is closed; what remains is its end
        self.stdout += chunk
        self.overflow = len(self.stdout) > LARGEST_ANSWER_BYTES
        return moved or bool(chunk)
