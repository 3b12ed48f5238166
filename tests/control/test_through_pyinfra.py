"""`pyinfra INVENTORY deploys/audit.py`, as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsocket import paths
from nearsocket.model.snapshot import from_json
from tests.control.server import Keys, Server, serving, wrapper

ROOT = Path(__file__).resolve().parents[2]

#: A check that fails, to see that a failing host fails in pyinfra too.
FAILING = """
from nearsocket.model.check import check
from nearsocket.model.finding import failed, Evidence

@check("memory.always-bad")
def always_bad(host):
    \"\"\"Fails.\"\"\"
    yield failed(host.name, "always bad", [Evidence("nothing", "nothing")], "nothing helps")
"""


def pyinfra(folder: Path, inventory: str, *options: str, deploy: str = "audit.py") -> tuple[int, str]:
    (folder / "inventory.py").write_text(inventory)
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environ.pop("SSH_AUTH_SOCK", None)
    args = [sys.executable, "-m", "pyinfra", "inventory.py", str(paths.deploys_folder() / deploy), "-y", *options]
    ended = subprocess.run(
        args, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.returncode, ended.stdout + ended.stderr


def data(server: Server) -> dict[str, object]:
    return {
        "ssh_user": server.ssh().user,
        "ssh_hostname": "127.0.0.1",
        "ssh_port": server.port,
        "ssh_key": str(server.keys.user),
        "ssh_known_hosts_file": str(server.known_hosts),
        "ssh_config_file": "/dev/null",
    }


def test_hosts_are_audited_by_one_exec_each_over_pyinfras_connection(server: Server, tmp_path: Path) -> None:
    before = len(server.sessions())
    code, said = pyinfra(
        tmp_path,
        f"hosts = [('@nearsocket/gpu1', {data(server)}), '@local']",
        "--data",
        "nearsocket_only=host.reachable",
        "--data",
        "nearsocket_save=taken",
    )
    assert code == 0, said
    assert len(server.sessions()) == before + 1
    taken = {from_json(file.read_text()).host for file in (tmp_path / "taken").iterdir()}
    assert taken == {"gpu1", "@local"}
    assert "exit code 0" in said


def test_a_failing_host_fails_in_pyinfra_and_the_reports_are_all_there(server: Server, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bad.py").write_text(FAILING)
    waiver = [{"id": "memory.always-bad", "reason": "a test", "owner": "ops", "expires": "2999-01-01"}]
    inventory = f"hosts = [('gpu1', {data(server)}), ('gpu2', {{**{data(server)}, 'nearsocket_waivers': {waiver}}})]"
    code, said = pyinfra(tmp_path, inventory, "--data", "nearsocket_only=memory.always-bad", "--data", "nearsocket_checks=own")
    assert code == 1
    assert "exit code 2" in said
    assert "exit code 0" in said
    assert "a test" in said


def test_a_host_that_gives_no_answer_fails_with_its_reason(keys: Keys, tmp_path: Path) -> None:
    with serving(tmp_path / "server", keys, wrapper(tmp_path, 'PATH=/nowhere exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')) as own:
        code, said = pyinfra(tmp_path, f"hosts = [('gpu1', {data(own)})]")
    assert code == 1
    assert "python3" in said


@pytest.mark.parametrize("value", ["nearsocket_timeout=soon", "nearsocket_only=nonsense", "nearsocket_checks=/nowhere"])
def test_data_that_cannot_be_used_is_one_line(tmp_path: Path, value: str) -> None:
    code, said = pyinfra(tmp_path, "hosts = ['@local']", "--data", value)
    assert code == 1
    assert "expected" in said


def test_an_unknown_host_key_is_refused_by_the_connector(server: Server, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    code, said = pyinfra(
        tmp_path, f"hosts = [('@nearsocket/gpu1', {{**{data(server)}, 'ssh_known_hosts_file': '{tmp_path}/empty'}})]"
    )
    assert code == 1
    assert "StrictPolicy" in said
    assert (tmp_path / "empty").read_text() == ""


def test_a_host_without_replicas_proves_nothing_and_fails_in_pyinfra_too(tmp_path: Path) -> None:
    code, said = pyinfra(tmp_path, "hosts = ['@local']", deploy="verify.py")
    assert code == 1
    assert "UNKNOWN  @local  nearsocket manages nothing here" in said
