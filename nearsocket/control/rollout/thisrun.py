"""Which process a client is, so that a run that ended on this very machine is known to be gone without waiting for its silence."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def mine() -> str:
    """`MACHINE/PID/BEGAN` of this process: its machine's boot and its namespace of process ids (hashed), its id, and when it began
    in ticks of that boot. Empty where the system does not tell."""
    try:
        return f"{_machine()}/{os.getpid()}/{_began(os.getpid())}"
    except (OSError, ValueError):
        return ""


def is_gone(run: str) -> bool:
    """Whether that client was a process of this machine and is there no more, or an earlier run of this very process. False
    wherever that is not known for sure."""
    if run and run == mine():
        return True
    machine, _, rest = run.partition("/")
    pid, _, began = rest.partition("/")
    try:
        if machine != _machine():
            return False
        os.kill(int(pid), 0)  # another user's answers too, by a refusal, where /proc may hide it
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    try:
        return bool(began) and _began(int(pid)) != began
    except (OSError, ValueError):
        return False


def _machine() -> str:
    """This boot of this machine, and the namespace in which process ids mean something. Raises OSError."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return hashlib.sha256(f"{boot} {Path('/proc/self/ns/pid').readlink()}".encode()).hexdigest()[:16]


def _began(pid: int) -> str:
    """Field 22 of proc_pid_stat(5); the name before may hold anything. Raises OSError, ValueError."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError("a line that was cut")
    return fields[19]
