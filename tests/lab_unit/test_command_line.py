"""The lab's command line: help without a lab, and one clear line where the host lacks something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import lifecycle
from lab.state import LabFolder
from tests.lab_unit.world import World, wish


def run(*arguments: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "NEARSOCKET_LAB_STATE": str(tmp_path / "state"),
        "NEARSOCKET_LAB_CACHE": str(tmp_path / "cache"),
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_help_names_every_command(tmp_path: Path) -> None:
    said = run("--help", tmp_path=tmp_path).stdout
    commands = [line.split()[0] for line in said.partition("Commands:")[2].splitlines() if line.strip()]
    assert {"up", "down", "reset", "ssh", "list", "kill", "logs", "ssh-config", "image", "demo"} <= set(commands)


def test_without_an_emulator_one_line_says_what_to_install(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    done = run("up", tmp_path=tmp_path, PATH=str(empty))
    assert done.returncode == 2
    assert "expected qemu-system-x86_64" in done.stderr
    assert "apt-get install" in done.stderr
    assert "qemu-system-x86" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_full_disk_under_the_cache_is_one_line(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    cache = tmp_path / "cache"
    cache.mkdir()
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f"mount -t tmpfs -o size=64m tmpfs {cache} && exec {sys.executable} -m lab image build && ls {cache}",
        ],
        env={**os.environ, "NEARSOCKET_LAB_CACHE": str(cache)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "MiB free in" in done.stderr
    assert "NEARSOCKET_LAB_CACHE" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


def test_commands_on_a_machine_that_is_not_there_say_how_to_get_one(tmp_path: Path) -> None:
    for command in ("reset", "kill", "logs"):
        done = run(command, "lab", tmp_path=tmp_path)
        assert done.returncode == 2
        assert "found none" in done.stderr
        assert "nearsocket lab up" in done.stderr


def test_down_and_list_of_nothing_are_content(tmp_path: Path) -> None:
    assert run("down", tmp_path=tmp_path).stdout == "nothing was up\n"
    assert run("list", tmp_path=tmp_path).stdout == ""


def test_list_tells_up_off_and_crashed_apart(world: World, tmp_path: Path) -> None:
    record = lifecycle.up(wish(hosts=3))
    lifecycle.kill(record, record.machines[0])
    world.started[1].kill()
    world.started[1].wait()
    rows = [line.split("\t")[:2] for line in run("list", tmp_path=tmp_path).stdout.splitlines()]
    assert rows == [["lab-1", "off"], ["lab-2", "crashed"], ["lab-3", "up"]]


def test_logs_come_without_control_characters(world: World, tmp_path: Path) -> None:
    lifecycle.up(wish())
    (LabFolder("lab").machine("lab") / "console.log").write_bytes(b"\x1b[31mred\x1b[0m\xff\n")
    assert run("logs", tmp_path=tmp_path).stdout.strip() == "[31mred [0m\ufffd"
