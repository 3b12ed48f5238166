"""Where everything is on a server, under `/` or, in tests, under another root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from nearsocket.model import programs
from nearsocket.model.rollout import beat, progress

_NUMBER = re.compile(r"[1-9][0-9]{0,8}\Z")


@dataclass(frozen=True)
class Tree:
    """The places of an installation. Link targets are always written as they are on `/`."""

    root: Path = Path("/")

    def at(self, absolute: str) -> Path:
        """That absolute path under the root."""
        return self.root / absolute.lstrip("/")

    @property
    def generations(self) -> Path:
        """The folder of all generations."""
        return self.at(f"{programs.ETC}/generations")

    @property
    def current(self) -> Path:
        """The link that names the generation in force."""
        return self.at(programs.CURRENT)

    @property
    def journal(self) -> Path:
        """What an apply that was cut short has still to do."""
        return self.at(f"{programs.ETC}/pending.json")

    @property
    def program(self) -> Path:
        """The program that units call."""
        return self.at(programs.PROGRAM)

    @property
    def lock(self) -> Path:
        """The lock of this host's one apply; it goes with the boot."""
        return self.at(f"{programs.RUN}/apply.lock")

    @property
    def values(self) -> Path:
        """Old values of the kernel settings that were changed."""
        return self.at("/var/lib/nearsocket/old-values.json")

    @property
    def folders(self) -> Path:
        """Folders of others that had to be made."""
        return self.at("/var/lib/nearsocket/folders.json")

    @property
    def adopted(self) -> Path:
        """Which engines of others were taken over, and what was done to them."""
        return self.at("/var/lib/nearsocket/adopted.json")

    @property
    def rollout(self) -> Path:
        """How far a rollout is here."""
        return self.at(progress.FILE)

    @property
    def beat(self) -> Path:
        """When a rollout's client showed itself here last."""
        return self.at(beat.FILE)

    @property
    def aside(self) -> Path:
        """Where files that were changed by hand are kept."""
        return self.at("/var/lib/nearsocket/aside")

    def generation(self, number: int) -> Path:
        """That generation's folder."""
        return self.generations / str(number)

    def numbers(self) -> list[int]:
        """The generations there are, ascending."""
        try:
            return sorted(int(entry.name) for entry in self.generations.iterdir() if _NUMBER.match(entry.name))
        except FileNotFoundError:
            return []

    def number(self) -> Optional[int]:
        """The generation in force; None where there is none."""
        try:
            name = self.current.readlink().name
        except OSError:
            return None
        return int(name) if _NUMBER.match(name) else None
