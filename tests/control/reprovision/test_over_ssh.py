"""An upgrade over a real sshd that goes away with its host's reboot and comes back: only fresh connections see the next boot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nearsocket.control import verify
from nearsocket.control.reprovision import measuring
from nearsocket.control.reprovision.job import Reprovision
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.control.rollout import run
from nearsocket.control.rollout.came import Came
from nearsocket.control.rollout.run import Manner
from nearsocket.control.target import Target, Way
from nearsocket.control.verify import HostVerdicts
from nearsocket.model.rollout.report import End, RolloutReport
from tests.control.reprovision import machine
from tests.control.server import Keys, Server, serving, wrapper
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import NEW


@dataclass
class Place:
    """The host behind the server. `back_at`: at which look while it reboots it is back, None never."""

    site: Site
    server: Server
    back_at: int | None = 5
    now: float = 0.0
    looks: int = 0

    def pause(self, seconds: float) -> None:
        """Time passes: the old sshd still answers at first, then nobody, then the next boot's."""
        self.now += seconds
        if not self.site.machine.state["rebooting"]:
            return
        self.looks += 1
        if self.looks == 3:
            self.server.stop()
        if self.looks == self.back_at:
            self.site.machine.boot()
            self.server.start()

    def go(self, to: str = NEW, limit_s: float = 300.0, resume: bool = False) -> RolloutReport:
        job = Reprovision(to, "ops", (), 60.0, limit_s, accept_unknown=True, clock=lambda: self.now, pause=self.pause)
        target = Target("r1", Way.SSH, ssh=self.server.ssh())
        return run.rollout(job, [target], Manner("ops", resume=resume), Came())

    def asked(self) -> list[tuple[str, str]]:
        """Each step that the host was asked for, and the client's port: another port, another connection."""
        return [(line.split()[0], line.split()[1]) for line in (self.site.root / "asked").read_text().splitlines()]


@pytest.fixture
def host(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The host, serving. Stand-ins beside it: verdicts and all-reduces, which have tests of their own."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)
    site = Site(tmp_path / "host")
    monkeypatch.setattr(verify, "one", lambda target, *_: HostVerdicts(target.name, silent=()))
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared())
    monkeypatch.setattr(measuring, "changes", lambda *_: [])
    with serving(tmp_path / "server", keys, wrapper(tmp_path / "shell", machine.shell(site.root))) as server:
        yield Place(site, server)


def test_the_next_boot_is_seen_by_a_fresh_connection_and_the_upgrade_goes_on(host: Place) -> None:
    report = host.go()
    assert [one.end for one in report.hosts] == [End.VERIFIED], report
    assert (host.site.versions, host.site.machine.state["module"], host.site.up) == ({NEW}, NEW, set(UNITS))
    asked = host.asked()
    at = [step for step, _ in asked].index("reboot")
    waited = asked[at + 1 :]
    # Each look while it is waited for has a connection of its own, and none of them is the one that the reboot was asked over.
    looks = [port for step, port in waited if step == "status"][:3]
    assert len(set(looks)) == 3
    assert asked[at][1] not in looks


def test_a_host_that_stays_away_is_lost_at_the_limit_and_gone_on_with_when_it_is_back(host: Place) -> None:
    host.back_at = None
    report = host.go(limit_s=60.0)
    assert [one.end for one in report.hosts] == [End.FAILED]
    assert "expected the host to come back from its reboot within 60 s, found: " in str(report.hosts[0].reason)
    host.site.machine.boot()
    host.server.start()
    assert [one.end for one in host.go(resume=True).hosts] == [End.VERIFIED]
    assert host.site.up == set(UNITS)
