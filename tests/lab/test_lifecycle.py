"""The commands on real machines: labs side by side, power cuts, interruptions, full disks, a checkout that cannot be written."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import lifecycle, process, ssh, state
from lab.errors import LabError
from lab.lifecycle import Wish
from lab.state import LabFolder
from tests.lab.host import LabHost

ROOT = Path(__file__).resolve().parent.parent.parent

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


@pytest.fixture
def extra(lab_state: Path) -> Iterator[str]:
    """The name of one more lab, gone after the test."""
    yield "extra"
    lifecycle.down("extra")


def small(name: str, **more: int) -> Wish:
    return Wish(name=name, profile="small", **more)  # type: ignore[arg-type]


#: Whoever runs tests in the background had SIGINT ignored, and an ignored signal stays so in every child.
LAB = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); runpy.run_module('lab', run_name='__main__')"


def started(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The command in a process of its own, its progress readable line by line."""
    return subprocess.Popen(
        [sys.executable, "-c", LAB, *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupt_at(child: subprocess.Popen[str], words: str) -> str:
    """Send Ctrl-C when the progress says the words; what it says from then on."""
    assert child.stderr is not None
    for line in child.stderr:
        if words in line:
            child.send_signal(signal.SIGINT)
            return child.communicate(timeout=120)[1]
    raise AssertionError(f"never said {words!r}")


def emulators() -> set[int]:
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and "-qmp" in process.command_line(int(entry.name))
    }


def test_two_labs_stand_side_by_side_and_one_goes_down_alone(host: LabHost, extra: str) -> None:
    record = lifecycle.up(small(extra))
    other = LabHost(record, record.machines[0])
    assert (host.sh("hostname"), other.sh("hostname")) == (host.name, "extra")
    assert ssh.public(LabFolder(host.record.name).key) != ssh.public(LabFolder(extra).key)
    lifecycle.down(extra)
    assert process.of_machine(record.machines[0].uuid) is None
    assert host.sh("hostname") == host.name


def test_every_port_is_on_the_loopback_address(host: LabHost) -> None:
    pid = process.of_machine(host.machine.uuid)
    listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [line.split()[3] for line in listening if f"pid={pid}," in line]
    assert ours == [f"127.0.0.1:{host.machine.port}"]


def test_the_guest_reaches_nobody(host: LabHost) -> None:
    host.fails("timeout 5 bash -c 'echo >/dev/tcp/10.0.2.2/22'")


def test_a_power_cut_loses_what_was_not_synced_and_the_disk_boots_again(extra: str) -> None:
    record = lifecycle.up(small(extra))
    one = LabHost(record, record.machines[0])
    one.sh("echo kept >/root/kept; sync")
    boot = one.sh("cat /proc/sys/kernel/random/boot_id")
    assert lifecycle.kill(record, record.machines[0])
    again = lifecycle.up(small(extra))
    assert LabHost(again, again.machines[0]).sh("cat /root/kept") == "kept"
    assert LabHost(again, again.machines[0]).sh("cat /proc/sys/kernel/random/boot_id") != boot


def test_a_reboot_over_ssh_comes_back_with_another_boot_id(extra: str) -> None:
    record = lifecycle.up(small(extra))
    one = LabHost(record, record.machines[0])
    before = lifecycle.boot_id(record, one.machine)
    assert before
    ssh.run(record.name, one.name, "systemctl reboot")
    lifecycle.wait_reboot(record, one.machine, before, 600)
    assert lifecycle.boot_id(record, one.machine) != before


def test_a_crashed_lab_is_cleared_by_the_next_up(extra: str) -> None:
    record = lifecycle.up(small(extra))
    pid = process.of_machine(record.machines[0].uuid)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    child = started("up", "extra", "--profile", "small")
    _, said = child.communicate(timeout=300)
    assert child.returncode == 0
    assert "clearing away" in said


@pytest.mark.parametrize("words", ["booting"])
def test_ctrl_c_while_it_boots_leaves_nothing(lab_state: Path, words: str) -> None:
    before, labs = emulators(), state.names()
    child = started("up", "extra", "--profile", "small")
    said = interrupt_at(child, words)
    assert child.returncode == 130
    assert "nearsocket: interrupted" in said
    assert "Traceback" not in said
    assert emulators() == before
    assert state.names() == labs
    assert not LabFolder("extra").lock.exists()


@pytest.mark.parametrize("words", ["downloading packages", "installing the base", "making the file system"])
def test_ctrl_c_while_the_image_is_built_leaves_nothing(tmp_path: Path, words: str) -> None:
    child = started("image", "build", "--profile", "small", NEARSOCKET_LAB_CACHE=str(tmp_path / "cache"))
    said = interrupt_at(child, words)
    assert child.returncode == 130
    assert said.strip().splitlines()[-1] == "nearsocket: interrupted"
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["lock"]
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def in_tmpfs(size: str, where: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run the lab's command line with a small file system mounted for it alone; `code` goes before it."""
    where.mkdir(parents=True, exist_ok=True)
    script = f'mount -t tmpfs -o size={size} tmpfs "{where}" && "{sys.executable}" -c "$CODE"; code=$?; ls -A "{where}"; exit $code'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env={**os.environ, "CODE": code},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_root
def test_a_disk_that_fills_while_the_image_is_built_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARSOCKET_LAB_CACHE", str(tmp_path / "cache"))
    code = "import lab.image; lab.image.NEEDED_MIB = {'small': 0}; "
    code += "from nearsocket.cli import main; main(['lab', 'image', 'build', '--profile', 'small'])"
    done = in_tmpfs("150m", tmp_path / "cache", code)
    assert done.returncode == 2
    told = [line for line in done.stderr.splitlines() if not line.startswith("lab ")]
    assert len(told) == 2
    assert "NEARSOCKET_LAB_CACHE" in told[1]
    assert done.stdout.split() == ["lock"]


@needs_root
def test_a_disk_that_fills_while_a_machine_boots_is_one_line_and_leaves_nothing(
    lab_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARSOCKET_LAB_STATE", str(tmp_path / "state"))
    before = emulators()
    code = "import lab.lifecycle; lab.lifecycle.MACHINE_MIB = 0; "
    code += "from nearsocket.cli import main; main(['lab', 'up', 'tight', '--profile', 'small'])"
    done = in_tmpfs("40m", tmp_path / "state", code)
    assert done.returncode == 2
    told = [line for line in done.stderr.splitlines() if not line.startswith("lab ")]
    assert told
    assert "Traceback" not in done.stderr
    assert done.stdout.split() == []
    assert emulators() == before


@needs_root
def test_a_checkout_that_cannot_be_written_is_no_obstacle(extra: str) -> None:
    up = f'"{sys.executable}" -m lab up extra --profile small'
    script = f'mount --bind -o ro "{ROOT}" "{ROOT}" && cd "{ROOT}" && ! touch x 2>/dev/null && {up}'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_occupied_port_is_one_line(lab_state: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        child = started("up", "extra", "--profile", "small", "--port", str(port))
        said = child.communicate(timeout=300)[1].splitlines()
    assert child.returncode == 2
    told = [line for line in said if not line.startswith("lab ")]
    assert told[0] == f"nearsocket: expected port {port} of 127.0.0.1 free, found it occupied"
    assert not LabFolder("extra").path.exists()


def test_a_saved_state_that_is_not_there_is_refused_and_the_machine_runs_on(host: LabHost) -> None:
    with pytest.raises(LabError, match=r"expected a saved state never-saved, found .*clean"):
        host.reset("never-saved")
    assert host.sh("echo here") == "here"
