"""Stand-ins for image, emulator and monitor, so that a lab's life can be tested in milliseconds."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.image import Image
from lab.lifecycle import Wish
from lab.state import LabRecord, MachineRecord


class World:
    """What the stand-ins did: processes that were started, snapshots that were taken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        self.calls: list[str] = []
        self.emulator = folder / "qemu-system-x86_64"
        self.emulator.symlink_to("/bin/sh")

    def power_on(self, record: LabRecord, one: MachineRecord, image: Image) -> subprocess.Popen[bytes]:
        """A process that carries the machine's identity and waits."""
        child = subprocess.Popen(
            [str(self.emulator), "-c", "echo up; read line", "-uuid", one.uuid], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        self.started.append(child)
        return child

    @property
    def running(self) -> int:
        """How many of the processes still run."""
        return sum(child.poll() is None for child in self.started)


class FakeMonitor:
    """A monitor that takes every command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> FakeMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def save(self, snapshot: str) -> None:
        """A snapshot is taken."""

    def load(self, snapshot: str) -> None:
        """A snapshot is put back."""


def wish(name: str = "lab", hosts: int = 1, shape: str = "two-socket", port: int | None = None) -> Wish:
    return Wish(name=name, hosts=hosts, shape=shape, profile="small", port=port)


def nothing_left(world: World) -> bool:
    return world.running == 0 and not (world.folder / "state").exists()
