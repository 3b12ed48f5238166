"""NCCL's debug log: where it goes, which subsystems it has, and a line's shape, in the two versions that were captured."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

#: What NCCL prints by itself (NCCL_DEBUG_SUBSYS unset).
DEFAULT_SUBSYSTEMS = frozenset({"INIT", "BOOTSTRAP", "ENV"})


def version(environ: Mapping[str, str]) -> str:
    """The NCCL version whose lines are written: 2.28.9, or what NEARSOCKET_STANDIN_NCCL names."""
    return environ.get("NEARSOCKET_STANDIN_NCCL", "2.28.9")


class Log:
    """One process's log. It stays open for the life of the process, as NCCL's does."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.version = version(environ)
        self.newer = tuple(int(part) for part in self.version.split(".")) >= (2, 30, 7)
        self._level = environ.get("NCCL_DEBUG", "").upper()
        named = environ.get("NCCL_DEBUG_SUBSYS", "")
        chosen = {word.strip().upper() for word in named.split(",")} - {""}
        self._subsystems = frozenset(chosen) if chosen else DEFAULT_SUBSYSTEMS
        self._host = socket.gethostname().split(".")[0]
        self._out = self._open(environ.get("NCCL_DEBUG_FILE", ""))

    def _open(self, path: str) -> TextIO:
        if not path or self._level not in ("INFO", "WARN", "TRACE"):
            return sys.stdout
        return Path(path.replace("%h", self._host).replace("%p", str(os.getpid()))).open("a", encoding="utf-8")

    def info(self, subsystems: str, device: int, text: str) -> None:
        """An INFO line, if the level and one of the subsystems (`INIT|ENV`) ask for it."""
        if self._level not in ("INFO", "TRACE"):
            return
        if "ALL" in self._subsystems or self._subsystems.intersection(subsystems.split("|")):
            self._write(device, f"NCCL INFO {text}")

    def warn(self, device: int, place: str, text: str) -> None:
        """A WARN line with NCCL's empty line before it."""
        if self._level in ("WARN", "INFO", "TRACE"):
            self._write(device, f"{place} NCCL WARN {text}", before="\n")

    def _write(self, device: int, text: str, before: str = "") -> None:
        self._out.write(f"{before}{self._host}:{os.getpid()}:{threading.get_native_id()} [{device}] {text}\n")
        self._out.flush()
