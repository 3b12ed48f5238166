"""Ways to run one program on one host, once: standard input in, standard output back, everything under a time limit."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from nearsocket.control.transport.process import Children
from nearsocket.model.errors import NearsocketError

#: A snapshot of a busy host is a few MiB; more than this is no snapshot and must not fill the memory.
LARGEST_ANSWER_BYTES = 64 << 20


class Trouble(enum.StrEnum):
    """Why a host gave no answer: a closed set, so that a report and a test can tell one from another."""

    RESOLVE = "name resolution"
    UNREACHABLE = "unreachable"
    REFUSED = "connection refused"
    TIMEOUT = "time limit"
    HOST_KEY_UNKNOWN = "host key unknown"
    HOST_KEY_CHANGED = "host key changed"
    DENIED = "permission denied"
    SSH = "ssh"
    NO_PYTHON = "no Python"
    OLD_PYTHON = "Python too old"
    SUDO = "sudo"
    KILLED = "program killed"
    PROGRAM = "program failed"
    ANSWER = "answer unusable"
    HERE = "this machine"


class TransportError(NearsocketError):
    """A host gave no usable answer. `evidence` is what ssh or the program wrote on standard error, cleaned.

    `partial` is what it wrote on standard output. That may be whole all the same: a process that the login leaves behind keeps
    standard output open until the time limit, a logout script fails.
    """

    def __init__(self, trouble: Trouble, message: str, hint: str, evidence: str = "") -> None:
        super().__init__(message, hint)
        self.trouble = trouble
        self.evidence = evidence
        self.partial = b""

    def with_partial(self, stdout: bytes) -> TransportError:
        """This error, with what was written until then."""
        self.partial = stdout
        return self


@dataclass(frozen=True)
class Answer:
    """What the program wrote on standard output, and on standard error (cleaned); `took_s` includes the connection."""

    stdout: bytes
    stderr: str
    took_s: float


class Transport(Protocol):
    """One way to reach one host."""

    def run(self, command: str, stdin: bytes, timeout_s: float, children: Children) -> Answer:
        """Run the shell command once with that standard input. Raises TransportError, one line, where there is no answer."""
