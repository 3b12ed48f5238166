"""A process's title, set as setproctitle does: over argv and the environment in memory, which /proc/PID/environ then lacks."""

from __future__ import annotations

import ctypes
from pathlib import Path

PR_SET_NAME = 15


def area(stat: str) -> tuple[int, int]:
    """Start and end of the memory that holds argv and, right behind it, the environment (proc_pid_stat(5), fields 48 to 51)."""
    fields = stat.rpartition(")")[2].split()
    arg_start, _arg_end, env_start, env_end = (int(fields[number - 3]) for number in (48, 49, 50, 51))
    return arg_start, max(arg_start, env_start, env_end)


def set_title(text: str) -> None:
    """Show `text` as command line and its first 15 bytes as name. Whoever needs the environment later must have copied it."""
    start, end = area(Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace"))
    title = text.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title, len(title))
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NAME, ctypes.c_char_p(text.encode()[:15]), 0, 0, 0)
