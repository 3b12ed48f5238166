"""OpenSSH as the transport: the user's ~/.ssh/config, agent, certificates and jump hosts hold, as in their own shell."""

from __future__ import annotations

import os
from pathlib import Path

from nearsocket.control.target import Ssh
from nearsocket.control.transport import LARGEST_ANSWER_BYTES, Answer, Transport, TransportError, Trouble, reasons
from nearsocket.control.transport.process import Children, Ended, run
from nearsocket.model.text import visible

DEFAULT_CONNECT_TIMEOUT_S = 10


class OpenSsh(Transport):
    """One host through the `ssh` command: one connection, one exec."""

    def __init__(self, ssh: Ssh) -> None:
        self.ssh = ssh

    def arguments(self, command: str, timeout_s: float) -> list[str]:
        """The ssh command line. Beyond strictness, batch mode and time limits nothing overrides the user's configuration."""
        ssh = self.ssh
        connect_s = min(ssh.connect_timeout_s or DEFAULT_CONNECT_TIMEOUT_S, timeout_s)
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": ssh.strict_host_key_checking or "yes",
            "ConnectTimeout": str(max(1, round(connect_s))),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "RemoteCommand": "none",  # one in the user's configuration would refuse ours
        }
        if ssh.known_hosts_file:
            options["UserKnownHostsFile"] = f'"{_path(ssh.known_hosts_file)}"'
        args = ["ssh", "-T"]
        if ssh.config_file:
            args += ["-F", _path(ssh.config_file)]
        for name, value in options.items():
            args += ["-o", f"{name}={value}"]
        if ssh.user:
            args += ["-l", ssh.user]
        if ssh.port:
            args += ["-p", str(ssh.port)]
        if ssh.key:
            args += ["-i", _path(ssh.key)]
        return [*args, "--", ssh.hostname, command]

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        """Run the command once. Raises TransportError, one line, where there is no answer."""
        environ = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}  # nor may a jump host's ssh ask anything
        try:
            ended = run(self.arguments(command, timeout_s), stdin, timeout_s, children, LARGEST_ANSWER_BYTES, environ)
        except FileNotFoundError:
            raise TransportError(
                Trouble.SSH, "expected the ssh command of OpenSSH on this machine, found none", "install openssh-client"
            ) from None
        return answer(ended, timeout_s, self.ssh)


def _path(text: str) -> str:
    return str(Path(text).expanduser())


def answer(ended: Ended, timeout_s: float, ssh: Ssh | str | None) -> Answer:
    """The answer of a program that ended well. `ssh` is how the host was reached, None for this machine, without ssh between.

    Raises TransportError, one line, for any other end; its `partial` is what the program had written.
    """
    words = visible(ended.stderr.decode("utf-8", "replace")).strip()
    if ended.overflow:
        raise TransportError(
            Trouble.ANSWER,
            f"expected a snapshot of at most {LARGEST_ANSWER_BYTES >> 20} MiB, found more",
            "look at what the login shell of that host writes to standard output",
            words,
        )
    if ended.code is None:
        raise reasons.timed_out(timeout_s, bool(ended.stdout), words).with_partial(ended.stdout)
    if ended.code != 0:
        raise reasons.explain(ended.code, words, ssh).with_partial(ended.stdout)
    return Answer(ended.stdout, words, ended.took_s)
