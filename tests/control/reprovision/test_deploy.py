"""`pyinfra INVENTORY deploys/reprovision.py` and `nearsocket rollout ... reprovision` as a person runs them, over real sshds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.model.rollout.progress import Phase, Progress
from nearsocket.onhost.apply import progress
from tests.control.reprovision import machine
from tests.control.server import Keys, Server, serving, wrapper
from tests.onhost.reprovision.conftest import UNITS, Site
from tests.onhost.reprovision.standin import NEW, OLD

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(600)  # beside virtual machines a step takes seconds


@dataclass
class Two:
    """Two hosts behind servers, and an inventory of them."""

    folder: Path
    sites: list[Site]
    servers: list[Server]

    def run(self, *words: str) -> tuple[int, str, str]:
        """A module of Python with these words: code, standard output, standard error."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        environ.pop("SSH_AUTH_SOCK", None)
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    def deploy(self, *options: str) -> tuple[int, str]:
        code, out, err = self.run("pyinfra", "inventory.py", str(paths.deploys_folder() / "reprovision.py"), "-y", *options)
        return code, out + err

    def rollout(self, *options: str) -> tuple[int, str, str]:
        return self.run("nearsocket", "rollout", "inventory.py", *options)

    def steps(self, at: int) -> list[str]:
        path = self.sites[at].root / "asked"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def two(tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    """Both serve; their reboots are over at once."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)
    sites = [Site(tmp_path / name) for name in ("r1", "r2")]
    with ExitStack() as running:
        servers = []
        for number, site in enumerate(sites):
            (site.root / "instant").touch()
            site.machine.change(proofs={})  # every start is proven near
            line = wrapper(tmp_path / f"shell{number}", machine.shell(site.root))
            servers.append(running.enter_context(serving(tmp_path / f"server{number}", keys, line)))
        hosts = []
        for number, server in enumerate(servers, 1):
            data = {
                "ssh_user": server.ssh().user,
                "ssh_hostname": "127.0.0.1",
                "ssh_port": server.port,
                "ssh_key": str(keys.user),
                "ssh_known_hosts_file": str(server.known_hosts),
                "ssh_config_file": "/dev/null",
            }
            hosts.append((f"@nearsocket/r{number}", data))
        (tmp_path / "inventory.py").write_text(f"hosts = {hosts!r}\n")
        yield Two(tmp_path, sites, servers)


def test_the_deploy_upgrades_every_host_and_does_nothing_the_second_time(two: Two) -> None:
    code, said = two.deploy("--data", f"driver={NEW}", "--data", "accept_unknown=true")
    assert code == 0, said
    for site in two.sites:
        assert (site.versions, site.machine.state["module"], site.up) == ({NEW}, NEW, set(UNITS))
    code, said = two.deploy("--data", f"driver={NEW}")
    assert code == 0, said
    assert said.count(f"the driver is {NEW} everywhere; 0 changes") == 2
    assert two.steps(0).count("upgrade") == 1


def test_a_host_that_is_refused_keeps_the_deploy_from_beginning_on_any(two: Two) -> None:
    two.sites[1].machine.fault("brake")
    code, said = two.deploy("--data", f"driver={NEW}")
    assert code != 0
    assert "brake would be removed" in said
    assert "not touched: @nearsocket/r2 failed" in said
    for at, site in enumerate(two.sites):
        assert (site.versions, site.up) == ({OLD}, set(UNITS))
        assert "prepare" not in two.steps(at)


def test_a_host_that_an_earlier_rollout_is_not_done_with_stops_the_deploy_until_it_is_told_what_to_do(two: Two) -> None:
    left = Progress("0123456789ab", "reprovision", "them@there", "2030-01-01T00:00:00Z", "r2", {"r1": NEW, "r2": NEW}, OLD)
    progress.write(two.sites[1].tree, left)
    data = ("--data", f"driver={NEW}", "--data", "accept_unknown=true")
    code, said = two.deploy(*data)
    assert code != 0
    assert "expected no rollout that is not at its end, found reprovision 0123456789ab by them@there" in said
    assert "--data resume=true goes on with it" in said
    assert all("prepare" not in two.steps(at) for at in (0, 1))
    code, said = two.deploy(*data, "--data", "resume=true")
    assert code == 0, said
    for site in two.sites:
        assert (site.versions, site.up) == ({NEW}, set(UNITS))
    done = progress.read(two.sites[1].tree)
    assert done is not None
    assert (done.id, done.phase) == (left.id, Phase.VERIFIED)


def test_a_deploy_without_a_version_is_told_so(two: Two) -> None:
    code, said = two.deploy()
    assert code != 0
    assert "expected a driver's version such as 580.105.08, found none" in said


def test_the_command_upgrades_in_order_and_its_report_says_so(two: Two) -> None:
    code, out, err = two.rollout("reprovision", "--driver", NEW, "--json", "--accept-unknown")
    assert code == 0, err
    report = json.loads(out)
    assert [(host["end"], host["before"], host["after"]) for host in report["hosts"]] == [("verified", OLD, NEW)] * 2
    assert report["job"] == "reprovision"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reprovision",), "--driver: expected a driver's version such as 580.105.08, found none"),
        (("reprovision", "--driver", "latest"), "--driver: expected a driver's version such as 580.105.08, found latest"),
        (("site", "--driver", NEW), "--driver: expected the job reprovision, found site"),
        (("reprovision", "--driver", NEW, "--reboot-limit", "1"), "--reboot-limit"),
    ],
)
def test_wrong_usage_is_one_line_and_64(two: Two, words: tuple[str, ...], said: str) -> None:
    code, out, err = two.rollout(*words)
    assert (code, out) == (64, "")
    assert said in err.splitlines()[0]
    assert two.steps(0) == []


def test_a_dry_deploy_reads_alone(two: Two) -> None:
    code, said = two.deploy("--data", f"driver={NEW}", "--dry")
    assert code == 0, said
    for at, site in enumerate(two.sites):
        assert set(two.steps(at)) == {"status", "preflight"}
        assert not (site.root / "var/lib/nearsocket/reprovision/next").exists()
        assert (site.versions, site.up) == ({OLD}, set(UNITS))
