"""The emulator's monitor: its QMP socket (QEMU: docs/interop/qmp-spec)."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.errors import LabError
from lab.say import clean


class Monitor:
    """One connection to a machine's monitor."""

    def __init__(self, folder: Path, timeout_s: float = 60.0) -> None:
        """Connect to `qmp.sock` in the folder; by way of /proc, since a socket's path may have 107 bytes at most."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._socket.connect(f"/proc/self/fd/{handle}/qmp.sock")
        except OSError:
            self._socket.close()
            raise
        finally:
            os.close(handle)
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._read()  # the greeting
        self.run("qmp_capabilities")

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lines.close()
        self._socket.close()

    def _read(self) -> dict[str, Any]:
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise LabError(
                "expected an answer from the emulator's monitor, found none", "nearsocket lab logs shows its console"
            ) from None
        if not line:
            raise LabError("expected an answer from the emulator's monitor, found it gone", "nearsocket lab logs shows its console")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, command: str, **arguments: str) -> Any:
        """Run one command and return its result; events in between are passed over."""
        self._socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self._read()
            if "error" in answer:
                raise LabError(f"expected the monitor to take {command}, found: {clean(str(answer['error'].get('desc')))}")
            if "return" in answer:
                return answer["return"]

    def human(self, line: str) -> str:
        """Run a command of the human monitor, whose snapshot commands wait until they are done; what it prints, it refused."""
        return str(self.run("human-monitor-command", **{"command-line": line})).strip()

    def save(self, snapshot: str) -> None:
        """Save the machine, memory and disk, under a name."""
        self._snapshot("savevm", snapshot)

    def load(self, snapshot: str) -> None:
        """Put the machine back to a saved state. One that is not there is refused first: a load that fails leaves it stopped."""
        found = self.saved()
        if snapshot not in found:
            raise LabError(f"expected a saved state {snapshot}, found {', '.join(found) or 'none'}")
        self._snapshot("loadvm", snapshot)

    def saved(self) -> list[str]:
        """The names of the saved states."""
        said = self.human("info snapshots")
        _, heading, rows = said.partition("\nID ")
        return [row.split()[1] for row in rows.splitlines()[1:]] if heading else []

    def _snapshot(self, command: str, snapshot: str) -> None:
        said = self.human(f"{command} {snapshot}")
        if said:
            raise LabError(f"expected {command} to succeed, found: {clean(said)}")
