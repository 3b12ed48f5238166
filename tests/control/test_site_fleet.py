"""Several hosts over real sshds: `deploys/site.py` one after another, `nearsocket rollout` in order, a client that is killed."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsocket import paths
from tests.control import applying
from tests.control.server import Keys, Server, serving, wrapper
from tests.onhost.apply.fake import FakeSystem
from tests.plan.hosts import IMAGE, four_on_one_socket

pytestmark = pytest.mark.timeout(1800)
ROOT = Path(__file__).resolve().parents[2]
NAMES = ("gpu1", "gpu2", "gpu3")


@dataclasses.dataclass
class Fleet:
    """Three servers by name, and the folder of the inventory."""

    folder: Path
    servers: dict[str, Server]

    def write(self, environment: dict[str, str] | None = None) -> None:
        """The inventory: every host with the same two replicas."""
        serve: dict[str, object] = {
            "environment": environment or {},
            "engine": "sglang",
            "image": {"reference": IMAGE.reference},
            "model": "/srv/models/m",
            "gpu_count": 2,
        }
        replicas = [{"name": "a", "port": 30000}, {"name": "b", "port": 30001}]
        hosts = []
        for name, server in self.servers.items():
            ssh = server.ssh()
            reach = {"ssh_user": ssh.user, "ssh_hostname": "127.0.0.1", "ssh_port": ssh.port, "ssh_key": ssh.key}
            reach |= {"ssh_known_hosts_file": ssh.known_hosts_file, "ssh_config_file": "/dev/null"}
            hosts.append((f"@nearsocket/{name}", {**reach, "nearsocket_serve": serve, "nearsocket_replicas": replicas}))
        (self.folder / "inventory.py").write_text(f"hosts = {hosts!r}\n")

    def environment(self) -> dict[str, str]:
        """Of a client: this code, no agent."""
        known = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        known.pop("SSH_AUTH_SOCK", None)
        return known

    def run(self, *words: str) -> tuple[int, str]:
        """A client's exit code, and what it said."""
        args = [sys.executable, "-m", *words]
        ended = subprocess.run(
            args,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
        assert "Traceback" not in ended.stdout, ended.stdout
        return ended.returncode, ended.stdout

    def system(self, name: str) -> FakeSystem:
        """That host's systemd."""
        return FakeSystem(self.folder / name / "root")

    def actions(self, name: str) -> list[str]:
        """What that host was asked for, but for signs of life, which come when they come."""
        return [action for action in applying.actions(self.folder / name) if action != "rollout-beat"]


@pytest.fixture
def fleet(tmp_path: Path, keys: Keys) -> Iterator[Fleet]:
    with ExitStack() as stack:
        servers = {}
        for name in NAMES:
            line = applying.prepare(tmp_path / name, dataclasses.replace(four_on_one_socket(), host=name).to_json())
            servers[name] = stack.enter_context(serving(tmp_path / f"server-{name}", keys, wrapper(tmp_path / f"w-{name}", line)))
        made = Fleet(tmp_path, servers)
        made.write()
        yield made


def test_hosts_behind_the_first_that_fails_are_not_touched_and_told_why(fleet: Fleet) -> None:
    for name in NAMES:  # whichever comes first fails: pyinfra's order is none
        fleet.system(name).change(broken=["nearsocket-sglang-b.service"])
    code, said = fleet.run("pyinfra", "inventory.py", str(paths.deploys_folder() / "site.py"), "-y")
    assert code == 1
    applied = [name for name in NAMES if "apply" in fleet.actions(name)]
    assert len(applied) == 1, said
    assert said.count(f"not touched: {applied[0]} failed") == 2
    assert all(not (fleet.folder / name / "root/etc/nearsocket").exists() for name in NAMES if name not in applied)


@pytest.mark.slow
def test_all_hosts_are_changed_where_none_fails(fleet: Fleet) -> None:
    code, said = fleet.run("pyinfra", "inventory.py", str(paths.deploys_folder() / "site.py"), "-y")
    assert code == 0, said
    assert said.count("generation none to 1") == 3


def rollout(fleet: Fleet, *options: str, folder: Path | None = None) -> tuple[int, str]:
    """A client of `nearsocket rollout` and what it said."""
    return fleet.run("nearsocket", "rollout", str((folder or fleet.folder) / "inventory.py"), *options)


@pytest.mark.slow
def test_a_rollout_over_ssh_is_one_connection_a_host_for_the_look_and_one_for_its_turn(fleet: Fleet) -> None:
    for name in NAMES:
        fleet.system(name).change(proofs={})
    code, said = rollout(fleet)
    assert code == 0, said
    assert [fleet.actions(name)[-4:] for name in NAMES] == [["apply", "verdicts", "rollout-mark", "rollout-mark"]] * 3
    assert all(server.connections() == 3 for server in fleet.servers.values())  # and one to say that it came to its end
    fleet.servers["gpu2"].stop()
    code, said = rollout(fleet)
    assert code == 2
    assert "not touched: gpu2 failed" in said
    code, said = rollout(fleet, "--unreachable", "skip")
    assert code == 0, said
    assert "SKIPPED  gpu2" in said


@pytest.mark.slow
@pytest.mark.parametrize("action", ["survey", "apply", "verdicts", "rollout-mark"])
def test_a_client_that_is_killed_is_resumed_from_another_folder(fleet: Fleet, tmp_path: Path, action: str) -> None:
    for name in NAMES:
        fleet.system(name).change(proofs={})
    assert rollout(fleet)[0] == 0
    fleet.write({"NEW": "1"})
    for name in NAMES:
        (fleet.folder / name / "root/var/lib/nearsocket/rollout.json").unlink()
    place = fleet.folder / "gpu2"
    (place / f"hold-{action}").touch()
    args = [sys.executable, "-m", "nearsocket", "rollout", "inventory.py"]
    client = subprocess.Popen(
        args, cwd=fleet.folder, env=fleet.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        for _ in range(18000):
            if (place / "held").exists() or client.poll() is not None:
                break
            time.sleep(0.05)
        assert (place / "held").exists()
    finally:
        client.kill()
        client.communicate()
    (place / f"hold-{action}").unlink()
    seen = [name for name in NAMES if (fleet.folder / name / "root/var/lib/nearsocket/rollout-beat.json").exists()]
    assert seen == ["gpu2"] if action != "survey" else seen == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "inventory.py").write_text((fleet.folder / "inventory.py").read_text())
    code, said = rollout(fleet, *(["--resume"] if action != "survey" else []), folder=elsewhere)
    assert code == 0, said
    assert "waiting" not in said  # it was a process of this machine, and is none any more
    for name in NAMES:
        active = fleet.system(name).state["active"]
        assert {"nearsocket-sglang-a.service", "nearsocket-sglang-b.service"} <= active.keys()
    code, said = rollout(fleet)
    assert code == 0, said
    assert said.count("CURRENT") == 3 + 3  # as each comes, and in the report
