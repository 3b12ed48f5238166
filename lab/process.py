"""The emulators' processes: found by an identity in their arguments, so that a reused process number is never mistaken for one."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def command_line(pid: int) -> list[str]:
    """A process's arguments; empty where it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.split("\0") if text else []


def started(pid: int) -> str:
    """When a process started, in clock ticks since boot (field 22 of stat); empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_over(pid: int, born: str) -> bool:
    """Whether a process has let go of all it held: gone, or a zombie whose last thread ended.

    Its arguments vanish earlier: memory goes first, files and their locks later. A second emulator would find its disk locked.
    """
    if started(pid) != born:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        return state in ("Z", "X") and len(list(Path(f"/proc/{pid}/task").iterdir())) <= 1
    except (OSError, IndexError):
        return True


def is_machine(pid: int, uuid: str) -> bool:
    """Whether the process is the emulator of the machine with this identity."""
    line = command_line(pid)
    return "-uuid" in line and uuid in line and "qemu" in Path(line[0]).name


def of_machine(uuid: str) -> int | None:
    """The process of a machine, looked for among all processes: also where a crash left no record of it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_machine(int(entry.name), uuid):
            return int(entry.name)
    return None


def end(pid: int, uuid: str, wait_s: float = 60.0) -> None:
    """Kill the machine's process and wait until it is gone; nothing happens where the number belongs to another one."""
    born = started(pid)
    if not is_machine(pid, uuid):
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    limit = time.monotonic() + wait_s
    while not is_over(pid, born) and time.monotonic() < limit:
        time.sleep(0.02)
