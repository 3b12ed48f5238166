"""Two machines that serve and are upgraded: their fleet file, clients at work on them, and what there is to see of both."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import site
from lab.errors import LabError
from lab.standins.gpu.packages import NEWER, VERSION
from nearsocket.model.driver import orders
from nearsocket.model.places import HOLD_STARTS
from tests.lab.rows import PACKAGES
from tests.lab.sites import Site

PORTS = {"a": 30000, "b": 30001}
INSTALLED = f"dpkg-query -W -f '${{Version}}\n' {PACKAGES} | sort -u"
LOADED = "cat /sys/module/nvidia/version"
HELD = "apt-mark showhold | tr '\n' ' '"


@dataclass
class Pair:
    """Two machines that serve, in the inventory's order, and their fleet file."""

    sites: list[Site]
    fleet: Path

    def start(self, *options: str, folder: Path | None = None) -> subprocess.Popen[str]:
        """A client at work, in that folder."""
        words = ["-m", "nearsocket", "rollout", str(self.fleet), "reprovision", "--driver", NEWER]
        return subprocess.Popen(
            [sys.executable, *words, "--timeout", "400", "--reboot-limit", "900", "--json", *options],
            cwd=folder or self.fleet.parent,
            env=site.environment(self.fleet),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def upgrade(self, *options: str, folder: Path | None = None) -> tuple[int, dict[str, Any]]:
        """A client that is left alone: its exit code and report."""
        client = self.start(*options, folder=folder)
        said, errors = client.communicate()
        assert "Traceback" not in errors, errors
        assert said, errors
        return client.returncode, json.loads(said)

    def is_at(self, *versions: str) -> None:
        """Each machine's driver: packages and module of one version, held as before, replicas serving near."""
        for one, version in zip(self.sites, versions, strict=True):
            assert one.host.sh(INSTALLED) == f"{version}-0standin1"
            assert one.host.sh(LOADED) == version
            assert set(one.host.sh(HELD).split()) == set(PACKAGES.split())
            one.nothing(f"ls {HOLD_STARTS} 2>/dev/null")
            one.serves(*PORTS.values())
            one.near("b", (1,))

    def untouched(self, starts: dict[str, str]) -> None:
        """Nothing was stopped anywhere."""
        assert self.starts() == starts
        self.is_at(VERSION, VERSION)

    def starts(self) -> dict[str, str]:
        """Which start of each replica runs, and which boot."""
        found = {f"{one.host.name} {name}": one.invocation(name) for one in self.sites for name in PORTS}
        boots = {one.host.name: one.host.sh("cat /proc/sys/kernel/random/boot_id") for one in self.sites}
        return {**found, **boots}


def run(fleet: Path, *words: str) -> str:
    """A command of nearsocket that must succeed; what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "nearsocket", *words],
        cwd=fleet.parent,
        env=site.environment(fleet),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def wait_for(one: Site, phase: str, limit_s: float = 1800) -> None:
    """Return once the machine's upgrade is in that phase; it may be in its reboot meanwhile."""
    end = time.monotonic() + limit_s
    look = f'for _ in $(seq 100); do grep -q \'"phase": "{phase}"\' {orders.FILE} 2>/dev/null && exit 0; sleep 0.2; done; exit 1'
    while time.monotonic() < end:
        with contextlib.suppress(LabError, AssertionError):
            one.host.sh(look)
            return
        time.sleep(0.5)
    pytest.fail(f"{one.host.name} was never {phase}")
