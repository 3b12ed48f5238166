"""One process's files under /proc, parsed no further than finding it again takes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from nearsocket.model.text import decode
from nearsocket.onhost.collect.files import CUT, read_bytes, read_text

PROC = Path("/proc")
_PF_KTHREAD = 0x00200000  # include/linux/sched.h
#: Any user may start a process with any words, so what is taken of one is bounded: bytes of its command line, characters of
#: one variable. More than an engine needs (model.read.titles searches as much of a command).
_COMMAND_CAP = 8192
_VALUE_CAP = 8192


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
    """A process's words as they stand, secrets included, at most 8 KiB of them, `<cut>` as their end where there were more.

    Raises OSError.
    """
    data = read_bytes(f"/proc/{pid}/cmdline", _COMMAND_CAP)
    words = [decode(word) for word in data.rstrip(b"\0").split(b"\0")]
    if words == [""]:
        return []
    kept: list[str] = []
    size = 0
    for word in words:
        size += len(word) + 1  # a byte that is no UTF-8 became four characters
        if size > _COMMAND_CAP:
            # Half a word could be half a secret, which nothing tells any more; of a title alone the beginning is of use.
            return [*kept, CUT] if kept else [word[:_COMMAND_CAP] + CUT]
        kept.append(word)
    return kept


def environ(pid: int) -> Optional[dict[str, str]]:
    """A process's start environment, secrets included; None where its title overwrote it. Raises OSError.

    setproctitle writes the title over the arguments and the environment behind them and fills the rest with zeros. A value
    longer than 8 KiB ends in `<cut>`.
    """
    data = read_bytes(PROC / str(pid) / "environ", 1 << 20)
    if not data:
        return {}
    entries = data.rstrip(b"\0").split(b"\0")
    if not re.match(rb"[A-Za-z_][^=\s]*=", entries[0]):
        return None
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals and len(name) <= 256:
            text = decode(value)
            found[decode(name)] = text if len(text) <= _VALUE_CAP else text[:_VALUE_CAP] + CUT
    return found


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
