"""`nearsocket audit` as a person types it."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from nearsocket import cli, paths
from nearsocket.cli import main
from nearsocket.commands.audit import with_sudo
from nearsocket.commands.options import PASSWORD_VARIABLE
from nearsocket.control import program
from nearsocket.control.target import Ssh, Sudo, Target, Way
from nearsocket.control.transport.openssh import OpenSsh
from nearsocket.model.errors import UsageError
from tests.control.server import Server


def run(*args: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["audit", *map(str, args)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def fleet(server: Server, tmp_path: Path) -> Callable[..., Path]:
    """Writes a fleet file of hosts that are all the one server, each told apart by an empty file of SSH's own."""

    def write(*names: str, **more: Any) -> Path:
        ssh = server.ssh()
        reach = {
            "user": ssh.user,
            "port": ssh.port,
            "ssh_key": ssh.key,
            "ssh_known_hosts_file": ssh.known_hosts_file,
        }
        hosts = []
        for name in names:
            config = tmp_path / f"{name}.ssh"
            config.touch()
            hosts.append({"name": name, "address": "127.0.0.1", "ssh_config_file": str(config)})
        whole = {"defaults": reach, "hosts": hosts, **more}
        path = tmp_path / "fleet.yaml"
        path.write_text(yaml.safe_dump(whole))
        return path

    return write


def test_json_is_all_that_standard_output_has(fleet: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    code = run(fleet("gpu1", "gpu2"), "--json", "--only", "host.reachable")
    out, err = capsys.readouterr()
    whole = json.loads(out)
    assert (whole["schema"], whole["exit_code"], code) == ("nearsocket.report/1", 0, 0)
    assert [host["name"] for host in whole["hosts"]] == ["gpu1", "gpu2"]
    assert all([finding["id"] for finding in host["findings"]] == ["host.reachable"] for host in whole["hosts"])
    assert "[1/2]" in err
    assert "[2/2]" in err


def test_save_scrub_and_judge_again(fleet: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = run(fleet("secretlab-1"), "--save", tmp_path / "taken", "--scrub", "--json")
    first = json.loads(capsys.readouterr().out)
    again = run(tmp_path / "taken", "--json")
    second = json.loads(capsys.readouterr().out)
    assert live == again
    assert first == second
    assert "secretlab" not in json.dumps(first)


def test_limit_and_quiet(fleet: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fleet("gpu1", "gpu2"), "--limit", "gpu2", "--only", "host.reachable", "-q") == 0
    assert capsys.readouterr() == ("", "")
    assert run(fleet("gpu1"), "--limit", "gpu7") == 64


def test_checks_of_ones_own_and_strict(fleet: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.py").write_text(
        "from nearsocket.model.check import check\nfrom nearsocket.model.finding import warned\n\n"
        '@check("mine.always")\ndef always(host):\n    "Warns."\n    yield warned(host.name, "mine", [], "nothing")\n'
    )
    common = (fleet("gpu1"), "--checks", own, "--only", "mine.*")
    assert run(*common) == 1
    assert run(*common, "--strict") == 2
    assert "mine.always" in capsys.readouterr().out
    path = fleet("gpu1", waivers=[{"id": "mine.always", "reason": "mine alone", "owner": "me", "expires": "2999-01-01"}])
    assert run(path, "--checks", own, "--only", "mine.*", "--strict") == 0
    assert "mine alone" in capsys.readouterr().out


WRONG = [
    ["--only", "nonsense"],
    ["--checks", "/nowhere"],
    ["--near", "x"],
    ["--near", ""],
    ["--timeout", "0"],
    ["--parallel", "0"],
    ["nowhere.yaml"],
    ["-oProxyCommand=x"],
    ["--", "-oProxyCommand=x"],
    ["--ask-sudo-password"],
    ["--sudo", "--ask-sudo-password"],
]


@pytest.mark.parametrize("args", WRONG, ids=[" ".join(args) for args in WRONG])
def test_wrong_usage_is_64_and_words_on_standard_error(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*args) == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("nearsocket: ")
    assert len(err.splitlines()) <= 2


def test_sudo_from_the_command_line_wins_and_its_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Target("a", Way.SSH, Ssh("a"))
    named = dataclasses.replace(plain, name="b", sudo=Sudo("svc"))
    own = dataclasses.replace(plain, name="c", sudo=Sudo(None, "own"))
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    assert with_sudo([plain, named], None, False) == (plain, named)
    assert [target.sudo for target in with_sudo([plain, named], True, False)] == [Sudo(), Sudo("svc")]
    assert [target.sudo for target in with_sudo([plain, named], False, False)] == [None, None]
    monkeypatch.setenv(PASSWORD_VARIABLE, "hunter2")
    assert [target.sudo for target in with_sudo([plain, named, own], None, False)] == [
        None,
        Sudo("svc", "hunter2"),
        Sudo(None, "own"),
    ]
    assert "hunter2" not in repr(with_sudo([named], None, False))
    monkeypatch.setenv(PASSWORD_VARIABLE, "two\nlines")
    with pytest.raises(UsageError, match="one line"):
        with_sudo([named], None, False)


@pytest.mark.slow
def test_an_audit_costs_at_most_half_more_than_bare_ssh_and_the_start(
    server: Server, fleet: Callable[..., Path], tmp_path: Path
) -> None:
    """The best of nine, taken in turns: other work on the machine only ever adds.

    Start-up is the judgement of a saved snapshot: the same imports, checks and report.
    """
    path = fleet("gpu1")
    audit = [sys.executable, "-m", "nearsocket", "audit"]
    assert run(path, "--save", tmp_path / "taken") in (0, 1, 2, 3)
    bare = OpenSsh(server.ssh()).arguments(program.remote_command(None), 60)
    payload = program.payload(["collect", "--timeout", "50", "--host", "gpu1"])
    commands: dict[str, tuple[list[str], bytes]] = {
        "bare ssh": (bare, payload),
        "start": ([*audit, str(tmp_path / "taken")], b""),
        "audit": ([*audit, str(path)], b""),
    }
    took: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(9):
        for name, (args, stdin) in commands.items():
            began = time.monotonic()
            subprocess.run(args, input=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            took[name].append(time.monotonic() - began)
    best = {name: min(times) for name, times in took.items()}
    print(", ".join(f"{name} {min(times):.3f} s (median {statistics.median(times):.3f} s)" for name, times in took.items()))  # noqa: T201
    assert best["audit"] <= 1.5 * best["bare ssh"] + best["start"]


def test_help_loads_no_command_and_lists_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} was imported for the help")

    monkeypatch.setattr(cli.importlib, "import_module", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out and late.help.split()[0] in out for name, late in cli.COMMANDS.items())


@pytest.mark.parametrize("name", [name for name, late in cli.COMMANDS.items() if late.where.startswith("nearsocket.")])
def test_the_help_line_is_the_commands_own_beginning(name: str) -> None:
    command = cli.LateGroup("x").get_command(click.Context(cli.cli), name)
    assert command is not None and command.name == name
    assert (command.help or "").split()[:2] == cli.COMMANDS[name].help.split()[:2]


def test_a_command_that_cannot_be_imported_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "audit", cli.Late("nearsocket.commands.gone:x", "Gone."))
    with pytest.raises(SystemExit):
        main(["audit"])
    err = capsys.readouterr().err
    assert err.splitlines()[0] == (
        "nearsocket: audit: expected nearsocket.commands.gone to load, found: No module named 'nearsocket.commands.gone'"
    )
    assert "Traceback" not in err


def test_the_lab_is_a_command_of_the_checkout_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "site-packages" / "nearsocket")
    with pytest.raises(SystemExit):
        main(["lab"])
    assert "expected to run from a source checkout" in capsys.readouterr().err
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "nearsocket.toml").touch()
    with pytest.raises(SystemExit):
        main(["lab"])
    assert "expected the folder" in capsys.readouterr().err
