"""A lab machine as tests see it: shell scripts over SSH, and plain words on where a rank's buffers lie."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab import lifecycle, ssh
from lab.state import LabRecord, MachineRecord

#: What sixteen ring buffers of 2,354 pages have together.
RING_PAGES = 16 * 2354


@dataclass(frozen=True)
class Placement:
    """What lab-pages said of one rank: pages by node of its ring buffers, their policy, the nodes it may use."""

    files: int
    pages: dict[int, int]
    policy: str
    mems: str

    @property
    def near_share(self) -> float:
        """The share of the ring buffers' pages on node 0."""
        return self.pages[0] / sum(self.pages.values())


@dataclass(frozen=True)
class LabHost:
    """One machine of the session's lab."""

    record: LabRecord
    machine: MachineRecord

    @property
    def name(self) -> str:
        """Its name in the inventory."""
        return self.machine.name

    def sh(self, script: str, user: str = "root", timeout_s: float = 240.0) -> str:
        """Run a script that must succeed; its standard output."""
        done = ssh.run(self.record.name, self.machine.name, f"set -e; {script}", user, timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def fails(self, script: str) -> str:
        """Run a script that must fail; what it said."""
        done = ssh.run(self.record.name, self.machine.name, script, timeout_s=240.0)
        assert done.returncode not in (0, 255), f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def reset(self, snapshot: str = "clean") -> float:
        """Back to a saved state; the seconds it took."""
        return lifecycle.reset(self.record, self.machine, snapshot)

    def placement(self, pid: str = "") -> Placement:
        """Where the first rank's ring buffers lie."""
        return placement(self.sh(f"lab-pages {pid}"))

    def free_mib(self, node: int = 0) -> int:
        """A node's free memory."""
        return int(self.sh(f"awk '/MemFree/ {{ print int($4 / 1024) }}' /sys/devices/system/node/node{node}/meminfo"))


def placement(said: str) -> Placement:
    """What lab-pages printed."""
    lines = said.splitlines()
    counts = re.findall(r"node(\d+) (\d+)", next(line for line in lines if line.startswith("files ")))
    files = re.match(r"files (\d+)", said[said.index("files ") :])
    policies = {line.removeprefix("policy ") for line in lines if line.startswith("policy ")}
    mems = next(line.removeprefix("mems ") for line in lines if line.startswith("mems "))
    assert files is not None
    return Placement(int(files[1]), {int(node): int(pages) for node, pages in counts}, ", ".join(sorted(policies)), mems)
