"""From an exit code and what ssh, sudo and the shell wrote, to one clear line. Pure.

The patterns are OpenSSH's own messages (sshconnect.c, ssh.c, clientloop.c, packet.c; not translated) and sudo's. A banner
that a server shows is on standard error too, so whole lines are matched, and only where ssh itself failed (255).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from nearsocket.control import program
from nearsocket.control.target import Ssh
from nearsocket.control.transport import TransportError, Trouble
from nearsocket.model.text import one_line

#: Exit code of ssh's own failures, and of a remote program that a signal ended.
SSH_FAILED = 255
_LONGEST = 200
#: A name in known_hosts: plain, or in brackets with its port.
_KEY_NAME = re.compile(r"(?:\[[A-Za-z0-9_:][A-Za-z0-9_.%:-]*\]:[0-9]{1,5}|[A-Za-z0-9_:][A-Za-z0-9_.%:-]*)\Z")


@dataclass(frozen=True)
class Rule:
    """A line of standard error that tells the trouble; `found` may name the pattern's groups.

    `hint` has words for a shell: `{ssh}`, the login by hand with this host's port and files, and `{forget}`, how its old key
    leaves known_hosts.
    """

    trouble: Trouble
    pattern: re.Pattern[str]
    found: str
    hint: str


def _rule(trouble: Trouble, pattern: str, found: str, hint: str) -> Rule:
    return Rule(trouble, re.compile(pattern, re.MULTILINE), found, hint)


_PORT = r"(?: port (?P<port>\d+))?"
#: The first that matches decides; a jump host's line comes before the target's, so the more telling rules stand first.
SSH_RULES = (
    _rule(
        Trouble.HOST_KEY_CHANGED,
        r"WARNING: (?:REMOTE HOST IDENTIFICATION HAS CHANGED|POSSIBLE DNS SPOOFING DETECTED)[\s\S]{0,2000}?"
        r"^Host key for (?P<key>\S+) has changed and you have requested strict checking"
        r"|WARNING: (?:REMOTE HOST IDENTIFICATION HAS CHANGED|POSSIBLE DNS SPOOFING DETECTED)|^Offending .* key in ",
        "the host key of {host} is not the one in known_hosts",
        "someone may be in between; where the host was installed anew: {forget}, then verify and add the new key",
    ),
    _rule(
        Trouble.HOST_KEY_UNKNOWN,
        r"^No .*host key is known for (?P<at>\S+) and you have requested strict checking",
        "no host key of {at} is in known_hosts",
        "verify the key by another way and add it: {ssh} once by hand, or ssh-keyscan into known_hosts",
    ),
    _rule(
        Trouble.HOST_KEY_UNKNOWN,
        r"^Host key verification failed\.|^(?:Host )?[Cc]ertificate invalid",
        "the host key could not be verified",
        "verify the key by another way and add it to known_hosts; a jump host's key must be there too",
    ),
    _rule(
        Trouble.RESOLVE,
        r"Could not resolve hostname (?P<at>[^:\s]+): (?P<why>.*)$",
        "the name {at} does not resolve ({why})",
        "look for a slip in the name, in ~/.ssh/config or in the inventory",
    ),
    _rule(
        Trouble.DENIED,
        r"^(?:(?P<at>\S+): )?Permission denied \((?P<why>[^)]*)\)\.$",
        "permission denied: no key was accepted ({why} offered by the server)",
        "see which key is offered: {ssh} -v; load it with ssh-add, or set ssh_key and user (in Python: ssh_user) in the inventory",
    ),
    _rule(
        Trouble.DENIED,
        r"Too many authentication failures",
        "permission denied: too many keys were offered",
        "name the one key: IdentityFile with IdentitiesOnly yes in ~/.ssh/config",
    ),
    _rule(
        Trouble.REFUSED,
        rf"^ssh: connect to host (?P<at>\S+){_PORT}: Connection refused",
        "connection refused by {at} port {port}",
        "look whether sshd runs there and listens on that port",
    ),
    _rule(
        Trouble.REFUSED,
        r"^channel \d+: open failed: (?P<why>.*)$",
        "the jump host could not connect onward ({why})",
        "look at the address and port behind the jump host, and at its AllowTcpForwarding",
    ),
    _rule(
        Trouble.UNREACHABLE,
        rf"^ssh: connect to host (?P<at>\S+){_PORT}: (?P<why>.*)$",
        "{at} port {port} is unreachable ({why})",
        "look at the address, the route and the firewall",
    ),
    _rule(
        Trouble.UNREACHABLE,
        r"^Connection (?:to (?P<at>\S+) port (?P<port>\d+) )?timed out|^Timeout, server (?P<name>\S+) not responding",
        "the connection timed out",
        "look whether the host is up: ping, its console, its management controller",
    ),
    _rule(
        Trouble.SSH,
        r"^(?P<why>.*: (?:line \d+: )?(?:Bad configuration option|Bad owner or permissions|Can't open user config file).*"
        r"|Can't open user config file.*|Bad (?:owner or permissions|configuration option).*|command-line.*: .*)$",
        "ssh refuses its configuration ({why})",
        "repair the file that the line names",
    ),
    _rule(
        Trouble.UNREACHABLE,
        r"^(?P<why>(?:kex_exchange_identification|ssh_exchange_identification|banner exchange|Connection (?:closed|reset) by|"
        r"client_loop|Connection to \S+ closed by remote host|packet_write_wait).*)$",
        "the connection broke off ({why})",
        "look at the server's log (journalctl -u ssh) and its MaxStartups",
    ),
)

SUDO_RULES = (
    _rule(
        Trouble.SUDO,
        r"^sudo: (?:a password is required|a terminal is required|no password was provided|no tty present)",
        "sudo asks for a password",
        "set NEARSOCKET_SUDO_PASSWORD, or allow the user NOPASSWD in sudoers, or leave --sudo out (less will be known)",
    ),
    _rule(
        Trouble.SUDO,
        r"^Sorry, try again|^sudo: \d+ incorrect password attempt",
        "sudo did not accept the password",
        "look at NEARSOCKET_SUDO_PASSWORD or type it again",
    ),
    _rule(
        Trouble.SUDO,
        r"^(?P<why>.* is not (?:in the sudoers file|allowed to (?:run sudo|execute)).*"
        r"|Sorry, user .* is not allowed to .*|sudo: (?!unable to resolve host).*)$",
        "sudo refuses ({why})",
        "look at the sudoers file of that host, or leave --sudo out (less will be known)",
    ),
)

_NO_SUDO = re.compile(r"\bsudo: (?:command )?not found|\bsudo: No such file", re.MULTILINE)
_NO_PYTHON = re.compile(r"python3?(?:\.\d+)?['\"‘’:]?.*(?:not found|No such file)|no python", re.IGNORECASE)

#: What the program's start (onhost/bootstrap.py) says of itself, by its exit code.
_OWN = re.compile(r"^nearsocket: (?P<why>.*)$", re.MULTILINE)
_START = {
    program.EXIT_NO_PROGRAM: (Trouble.ANSWER, "look at what the login shell of that host does with standard input"),
    program.EXIT_CUT: (Trouble.ANSWER, "the connection was cut while the program was sent: audit it again"),
    program.EXIT_TOO_OLD: (
        Trouble.OLD_PYTHON,
        "install a newer one beside it, such as python3.11; it is found by its name on PATH",
    ),
    program.EXIT_FAILED: (Trouble.PROGRAM, "look at the host's limits (ulimit -u, ulimit -n) and its free memory"),
    program.EXIT_NO_MEMFD: (Trouble.PROGRAM, "a kernel and Python with memfd_create are needed (Linux 3.17, glibc 2.27)"),
}


def timed_out(timeout_s: float, answered: bool, words: str) -> TransportError:
    """The time limit came first."""
    what = "part of an answer" if answered else "no answer"
    message = f"expected an answer within {timeout_s:g} s, found {what}"
    return TransportError(
        Trouble.TIMEOUT, message, "look at the host's load and at its login shell's start-up; --timeout S waits longer", words
    )


def by_hand(ssh: Ssh) -> str:
    """The login that a person would type, with the user, port and files of this host."""
    words = ["ssh"]
    words += ["-F", ssh.config_file] if ssh.config_file else []
    words += ["-o", f"UserKnownHostsFile={ssh.known_hosts_file}"] if ssh.known_hosts_file else []
    words += ["-p", str(ssh.port)] if ssh.port else []
    words += ["-l", ssh.user] if ssh.user else []
    words += ["-i", ssh.key] if ssh.key else []
    # A name that looks like an option is none behind `--`.
    return _shell([*words, *(["--"] if ssh.hostname.startswith("-") else []), ssh.hostname])


def _forget(ssh: Ssh, key: str) -> str:
    """How the old key leaves known_hosts. `key`: the name that ssh says it is kept under, used where it is a plain one."""
    own = ssh.hostname if ssh.port in (None, 22) else f"[{ssh.hostname}]:{ssh.port}"
    return _shell(
        ["ssh-keygen", "-R", key if _KEY_NAME.match(key) else own, *(["-f", ssh.known_hosts_file] if ssh.known_hosts_file else [])]
    )


def _shell(words: list[str]) -> str:
    """The words as a command to paste; a path's `~/` stays for the shell."""
    return " ".join("~/" + shlex.quote(word[2:]) if word.startswith("~/") else shlex.quote(word) for word in words)


def explain(code: int, words: str, ssh: Ssh | str | None) -> TransportError:
    """The error that this end means. `ssh`: how the host was reached, or its name; None for this machine, without ssh between."""
    way = Ssh(ssh) if isinstance(ssh, str) else ssh
    if way is not None and code == SSH_FAILED:
        return _ssh_failed(words, way)
    if _NO_SUDO.search(words):
        return TransportError(Trouble.SUDO, "expected sudo on the host, found none", "leave --sudo out, or log in as root", words)
    for rule in SUDO_RULES:
        found = rule.pattern.search(words)
        if found:
            return _error(rule, found, words, way or Ssh("this machine"), "the program to run through sudo")
    if code < 0 or code > 128:
        signal = -code if code < 0 else code - 128
        message = f"expected an answer, found that the program was ended by signal {signal}"
        return TransportError(Trouble.KILLED, message, "look at the host's log for the out-of-memory killer: journalctl -k", words)
    own = _OWN.search(words)
    if own and code in _START:
        trouble, hint = _START[code]
        return TransportError(trouble, one_line(own["why"], _LONGEST), hint, words)
    if own and code == 2:  # its refusal, which says everything
        message, hint = one_line(own["why"], _LONGEST), ""
        if message.endswith(")"):
            message, _, hint = message[:-1].rpartition(" (")
        return TransportError(Trouble.PROGRAM, message, hint, words)
    if code in (126, 127) or _NO_PYTHON.search(words):
        return no_python(words)
    last = one_line(words.splitlines()[-1], _LONGEST) if words else "nothing on standard error"
    message = f"expected the program to end with 0, found {code} ({last})"
    return TransportError(Trouble.PROGRAM, message, "look at the host's python3 and at what its login shell does", words)


def no_python(words: str) -> TransportError:
    """The host has no Python."""
    message = "expected python3 (3.9 or newer) on the host, found none"
    return TransportError(Trouble.NO_PYTHON, message, "install it there: apt-get install python3, or dnf install python3", words)


def _ssh_failed(words: str, ssh: Ssh) -> TransportError:
    for rule in SSH_RULES:
        found = rule.pattern.search(words)
        if found:
            return _error(rule, found, words, ssh, "an SSH login")
    if words:
        last = one_line(words.splitlines()[-1], _LONGEST)
        return TransportError(
            Trouble.SSH, f"expected an SSH login, found that ssh failed ({last})", f"try it by hand: {by_hand(ssh)} true", words
        )
    message = "expected an answer, found that ssh ended with 255 and said nothing (the program was killed, or the connection lost)"
    return TransportError(
        Trouble.KILLED, message, f"try it by hand: {by_hand(ssh)} true; look at the host's log: journalctl -k", words
    )


def _error(rule: Rule, found: re.Match[str], words: str, ssh: Ssh, expected: str) -> TransportError:
    hostname = ssh.hostname
    values = {name: one_line(value or "", _LONGEST) for name, value in found.groupdict().items()}
    values = {"at": hostname, "port": "?", "why": "", "host": hostname, **{name: value for name, value in values.items() if value}}
    message = f"expected {expected}, found {rule.found.format(**values)}"
    return TransportError(
        rule.trouble, message, rule.hint.format(**values, ssh=by_hand(ssh), forget=_forget(ssh, values.get("key", ""))), words
    )
