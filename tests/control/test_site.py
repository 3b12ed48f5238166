"""`pyinfra INVENTORY deploys/site.py` and its kin as a person runs them, over a real sshd, against the real program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.onhost.apply import journal
from nearsocket.onhost.apply.tree import Tree
from tests.control import applying
from tests.control.server import Keys, Server, serving, wrapper
from tests.onhost.apply.fake import FakeSystem
from tests.plan.hosts import IMAGE, four_on_one_socket

ROOT = Path(__file__).resolve().parents[2]
CURRENT = "root/etc/nearsocket/current"


class Site:
    """A folder with an inventory in git, and a server to converge."""

    def __init__(self, folder: Path, keys: Keys, server: Server) -> None:
        self.folder, self.server = folder, server
        self.place, self.project = folder / "place", folder / "project"
        self.project.mkdir()
        self.system = FakeSystem(self.place / "root")
        git(self.project, "init", "-q")

    def write(self, replicas: list[dict[str, object]], **data: object) -> None:
        """The inventory, committed."""
        serve = {"engine": "sglang", "image": {"reference": IMAGE.reference}, "model": "/srv/models/m", "gpu_count": 2}
        known = {
            "ssh_user": self.server.ssh().user,
            "ssh_hostname": "127.0.0.1",
            "ssh_port": self.server.port,
            "ssh_key": str(self.server.keys.user),
            "ssh_known_hosts_file": str(self.server.known_hosts),
            "ssh_config_file": "/dev/null",
            "nearsocket_serve": serve,
            "nearsocket_replicas": replicas,
            **data,
        }
        (self.project / "inventory.py").write_text(f"hosts = [('@nearsocket/gpu1', {known!r})]\n")
        git(self.project, "add", "inventory.py")
        git(self.project, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "x")

    def run(self, deploy: str, *options: str) -> tuple[int, str, list[str]]:
        """Exit code, what was said, the actions that ran on the server."""
        before = len(applying.actions(self.place))
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        environ.pop("SSH_AUTH_SOCK", None)
        args = [sys.executable, "-m", "pyinfra", "inventory.py", str(paths.deploys_folder() / deploy), *options]
        ended = subprocess.run(
            args, cwd=self.project, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110, check=False
        )
        said = ended.stdout + ended.stderr
        assert "Traceback" not in said, said
        return ended.returncode, said, applying.actions(self.place)[before:]


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def site(tmp_path: Path, keys: Keys) -> Iterator[Site]:
    line = applying.prepare(tmp_path / "place", four_on_one_socket().to_json())
    with serving(tmp_path / "server", keys, wrapper(tmp_path, line)) as server:
        yield Site(tmp_path, keys, server)


def engines(site: Site) -> list[str]:
    """The replicas' units that run."""
    return sorted(unit for unit in site.system.state["active"] if unit.startswith("nearsocket-sglang-"))


TWO = [{"name": "a", "port": 30000}, {"name": "b", "port": 30001}]


def test_a_host_is_converged_and_the_second_run_is_one_exec_and_no_change(site: Site) -> None:
    site.write(TWO)
    code, said, actions = site.run("site.py", "-y")
    assert code == 0, said
    assert actions == ["survey", "apply"]
    assert "generation none to 1" in said
    assert "replica a: the probe before its start: it could not run: run-nearsocket-shm-a.mount: stand-in" in said
    manifest = json.loads((site.place / CURRENT / "manifest.json").read_text())
    assert manifest["record"]["commit"]
    assert manifest["record"]["made_by"].count("@") == 1
    replicas = ["nearsocket-sglang-a.service", "nearsocket-sglang-b.service"]
    assert sorted(unit for unit in site.system.state["active"]) == [*replicas, "nearsocket-watch.timer"]
    calls, sessions = len(site.system.state["calls"]), len(site.server.sessions())
    code, said, actions = site.run("site.py", "-y")
    assert code == 0, said
    assert actions == ["survey"]
    assert len(site.server.sessions()) == sessions + 1
    assert "generation 1 is in force and as it should be; 0 changes" in said
    assert {words[1] for words in site.system.state["calls"][calls:]} == {"show"}


def test_dry_and_diff_show_it_all_and_write_nothing(site: Site) -> None:
    site.write(TWO)
    code, said, actions = site.run("site.py", "--dry", "--diff")
    assert code == 0, said
    assert actions == ["survey", "apply"]
    assert "+++ b/systemd/nearsocket-sglang-a.service" in said
    assert "start unit nearsocket-sglang-b.service" in said
    assert "probe replica b (never proven)" in said
    assert not (site.place / "root/etc/nearsocket").exists()


def test_what_a_cut_apply_left_is_ended_by_a_run_that_shows_its_changes_too(site: Site) -> None:
    site.write(TWO)
    assert site.run("site.py", "-y")[0] == 0
    journal.write(Tree(site.place / "root"), journal.Journal(1, boot="another"))
    code, said, actions = site.run("site.py", "-y", "--diff")
    assert code == 0, said
    assert actions == ["survey", "apply", "apply"]  # shown, then done
    assert "0 changes made, generation 1 to 1" in said
    code, said, actions = site.run("site.py", "-y", "--diff")
    assert (code, actions) == (0, ["survey"])
    assert "as it should be; 0 changes" in said


@pytest.mark.slow
def test_a_removal_needs_leave_and_a_rollback_brings_the_replica_back(site: Site) -> None:
    site.write(TWO)
    assert site.run("site.py", "-y")[0] == 0
    site.write(TWO[:1])
    code, said, _ = site.run("site.py", "-y")
    assert code == 1
    assert "allow_removals=true" in said
    assert len(engines(site)) == 2
    code, said, _ = site.run("site.py", "-y", "--data", "allow_removals=true")
    assert code == 0, said
    assert engines(site) == ["nearsocket-sglang-a.service"]
    (site.place / "root/srv/models/m").mkdir(parents=True)
    code, said, actions = site.run("rollback.py", "-y")
    assert code == 0, said
    assert actions == ["apply"]
    assert "generation 2 to 1" in said
    assert len(engines(site)) == 2


def test_a_plan_that_is_refused_fails_the_host_with_its_reason_and_writes_nothing(site: Site) -> None:
    site.write([{"name": n} for n in ("a", "b", "c")])
    code, said, actions = site.run("site.py", "-y")
    assert code == 1
    assert "expected" in said or "GPU" in said
    assert actions == ["survey"]
    assert not (site.place / "root/etc/nearsocket").exists()


def test_a_host_that_is_refused_fails_alone(site: Site) -> None:
    site.write(TWO)
    inventory = site.project / "inventory.py"
    inventory.write_text(
        inventory.read_text().replace("hosts = [", "hosts = [('@nearsocket/gpu0', {**KNOWN, 'nearsocket_replicas': []}), ")
    )
    inventory.write_text("KNOWN = {}\n" + inventory.read_text())
    text = inventory.read_text()
    known = text[text.index("('@nearsocket/gpu1', ") + len("('@nearsocket/gpu1', ") : -len(")]\n")]
    inventory.write_text(text.replace("KNOWN = {}", f"KNOWN = {known}"))
    code, said, _ = site.run("site.py", "-y")
    assert code == 1
    assert "expected the snapshot of 'gpu0'" in said
    assert "generation none to 1" in said
    assert engines(site) == ["nearsocket-sglang-a.service", "nearsocket-sglang-b.service"]


def test_a_unit_that_does_not_start_fails_the_run(site: Site) -> None:
    site.system.change(broken=["nearsocket-sglang-a.service"])
    site.write(TWO)
    code, said, _ = site.run("site.py", "-y")
    assert code == 1
    assert "nearsocket-sglang-a.service is failed" in said


@pytest.mark.slow
def test_images_and_tuning_run_alone(site: Site) -> None:
    site.write(TWO, nearsocket_tune={"swappiness": 1})
    code, said, _ = site.run("pull.py", "-y")
    assert code == 0, said
    assert site.system.state["images"] == [IMAGE.reference]
    code, said, _ = site.run("tune.py", "-y")
    assert code == 0, said
    assert sorted(path.name for path in (site.place / CURRENT).iterdir()) == ["manifest.json", "sysctl.d"]
    assert site.system.state["active"] == {}
    code, said, _ = site.run("engine.py", "-y")
    assert code == 0, said
    assert len(engines(site)) == 2
    assert site.run("site.py", "-y")[2] == ["survey"]
