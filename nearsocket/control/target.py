"""Whom to audit: one host, how to reach it and as whom; and the text `[user@]host[:port]`."""

from __future__ import annotations

import enum
import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from nearsocket.model.errors import UsageError
from nearsocket.model.freeze import Freeze
from nearsocket.model.report import Maintenance
from nearsocket.model.settings import Settings
from nearsocket.model.text import one_line

_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]+)\](?::(?P<port>.*))?\Z")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.%:-]*\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]*\$?\Z")


class Way(enum.Enum):
    """How a target is read."""

    LOCAL = "local"
    SSH = "ssh"
    FILE = "file"


@dataclass(frozen=True)
class Ssh:
    """How ssh reaches a host: pyinfra's `ssh_*` data. What is None is left to the user's ~/.ssh/config."""

    hostname: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    config_file: str | None = None
    known_hosts_file: str | None = None
    strict_host_key_checking: str | None = None
    connect_timeout_s: float | None = None


@dataclass(frozen=True)
class Sudo:
    """Run the program through sudo: as whom (None: root), with which password (None: sudo must not ask for one)."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Target:
    """One host to audit. `ssh` is set where `way` is SSH, `file` where it is FILE; `near` is the user's word on the GPUs' nodes.

    `settings`: what is to run there, None where the inventory says nothing of it. `freeze`: until when nothing is to change there.
    """

    name: str
    way: Way
    ssh: Ssh | None = None
    file: Path | None = None
    sudo: Sudo | None = None
    near: frozenset[int] | None = None
    groups: frozenset[str] = frozenset()
    maintenance: Maintenance | None = None
    freeze: Freeze | None = None
    settings: Settings | None = field(default=None, hash=False)


def is_host(text: str) -> bool:
    """Whether the text is a host's plain name or address (`::1` and `fe80::1%eth0` too): nothing that ssh takes for an option."""
    if _HOST.match(text):
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return bool(_HOST.match(text.lstrip(":")) or text == "::")


def is_user(text: str) -> bool:
    """Whether the text is a user's plain name: nothing that ssh or sudo takes for an option."""
    return bool(_USER.match(text))


def parse_host(text: str) -> Target:
    """The target that `[user@]host[:port]` names; an IPv6 address with a port stands in brackets.

    Raises UsageError for anything that ssh could take for an option or that is no such text.
    """
    user, at, rest = text.rpartition("@")
    bracketed = _BRACKETED.match(rest)
    port: str | None
    if bracketed:
        host, port = bracketed["host"], bracketed["port"]
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    else:
        host, port = rest, None  # no colon: a name; several: an IPv6 address without a port
    if not is_host(host) or (at and not is_user(user)):
        raise UsageError(
            f"expected [user@]host[:port], found {one_line(text, 80)!r}",
            "an IPv6 address with a port is written [fd00::1]:2222; the option form is not accepted",
        )
    ssh = Ssh(host, user or None, parse_port(port, text) if port is not None else None)
    name = host if ssh.port is None else f"[{host}]:{ssh.port}" if ":" in host else f"{host}:{ssh.port}"
    return Target(name, Way.SSH, ssh)


def parse_port(port: str, where: str) -> int:
    """A port of 1 to 65535. Raises UsageError."""
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise UsageError(f"expected a port of 1 to 65535 in {one_line(where, 80)!r}, found {one_line(port, 20)!r}")
    return int(port)
