"""One process's files under /proc, parsed no further than finding it again takes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from nearsocket.onhost.collect.files import CUT, decode, read_bytes, read_text

PROC = Path("/proc")
_PF_KTHREAD = 0x00200000  # include/linux/sched.h
_COMMAND_CAP = 1 << 16


@dataclass(frozen=True)
class Stat:
    """The fields of /proc/PID/stat that identify a process."""

    comm: str
    state: str
    ppid: int
    start_ticks: int
    kernel_thread: bool


def stat(pid: int) -> Stat:
    """A process's stat; it takes no lock of the process's memory, so it does not hang. Raises OSError."""
    data = read_text(f"/proc/{pid}/stat")
    comm, _, rest = data.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Stat(comm, fields[0], int(fields[1]), int(fields[19]), bool(int(fields[6]) & _PF_KTHREAD))


def pids() -> list[int]:
    """Every process number, this program's own left out."""
    return sorted(int(name) for name in os.listdir(PROC) if name.isdigit() and int(name) != os.getpid())  # noqa: PTH208


def command(pid: int) -> list[str]:
    """A process's words as they stand, secrets included. Raises OSError."""
    data = read_bytes(f"/proc/{pid}/cmdline", _COMMAND_CAP)
    cut = len(data) > _COMMAND_CAP
    words = [decode(word) for word in data[:_COMMAND_CAP].rstrip(b"\0").split(b"\0")]
    if words == [""]:
        return []
    return [*words, CUT] if cut else words


def environ(pid: int) -> Optional[dict[str, str]]:
    """A process's start environment, secrets included; None where its title overwrote it. Raises OSError.

    setproctitle writes the title over the arguments and the environment behind them and fills the rest with zeros.
    """
    data = read_bytes(PROC / str(pid) / "environ", 1 << 20)
    if not data:
        return {}
    entries = data.rstrip(b"\0").split(b"\0")
    if not re.match(rb"[A-Za-z_][^=\s]*=", entries[0]):
        return None
    return dict(decode(entry).partition("=")[::2] for entry in entries if b"=" in entry)


def file_links(pid: int) -> dict[int, str]:
    """A process's open files: descriptor to what its link says. Raises OSError."""
    folder = PROC / str(pid) / "fd"
    links: dict[int, str] = {}
    for name in os.listdir(folder):  # noqa: PTH208
        try:
            links[int(name)] = str((folder / name).readlink())
        except OSError:
            continue  # closed in between
    return links


def mount_of(pid: int, point: str) -> Optional[str]:
    """The mountinfo line of what is mounted last on that point in the process's namespace. Raises OSError."""
    lines = [line for line in read_text(PROC / str(pid) / "mountinfo", 8 << 20).splitlines() if line.split(" ")[4:5] == [point]]
    return lines[-1] if lines else None
