"""Trouble of this machine: what is judged is still told, and the code says what went wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsocket import cli
from nearsocket.control import audit as control_audit
from nearsocket.control import snapshots as files
from nearsocket.control.audit import Manner, audit
from nearsocket.control.target import Ssh, Target, Way
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.finding import Status
from nearsocket.model.snapshot import Snapshot
from tests import snapshots

SAVED = str(snapshots.path("no-gpu"))
TARGETS = [Target(name, Way.SSH, Ssh(name)) for name in ("gpu1", "gpu2")]


def command(shell: str, *args: str) -> subprocess.CompletedProcess[str]:
    """The command line behind a shell's redirections, which stand in `shell` as `"$@" ...`."""
    words = ["bash", "-c", shell, "bash", sys.executable, "-m", "nearsocket", *args]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("error", [OverflowError("int too large"), OSError(24, "Too many open files"), MemoryError()])
def test_whatever_one_host_raises_the_others_are_judged(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def collect(target: Target, *_rest: object) -> Snapshot:
        if target.name == "gpu1":
            raise error
        return dataclasses.replace(snapshots.load("no-gpu"), host="gpu2")

    monkeypatch.setattr(control_audit, "collect", collect)
    report = audit(TARGETS, Manner(()))
    assert [host.name for host in report.hosts] == ["gpu1", "gpu2"]
    (finding,) = report.hosts[0].findings
    assert (finding.id, finding.status, report.exit_code) == ("host.reachable", Status.UNKNOWN, 3)
    assert type(error).__name__ in finding.summary
    assert report.hosts[1].host


def test_a_nul_in_the_way_to_a_host_is_a_finding() -> None:
    report = audit([Target("gpu1", Way.SSH, Ssh("gpu1", key="a\0b"))], Manner((), timeout_s=2))
    assert "null byte" in report.hosts[0].findings[0].summary


def test_a_snapshot_that_cannot_be_saved_in_the_end_loses_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_snapshot: Snapshot, _folder: Path) -> Path:
        raise NearsocketError("gpu1: expected to write a snapshot there, found: No space left on device")

    monkeypatch.setattr(files, "save", full)
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", SAVED, "--save", str(tmp_path)])
    assert ended.value.code == 74
    out, err = capsys.readouterr()
    assert "gpu1" in out
    assert "nearsocket: gpu1: expected to write a snapshot there, found: No space left on device" in err.splitlines()


def test_a_folder_that_cannot_take_a_host_ends_it_before_any_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def collect(*_args: object) -> Snapshot:
        raise AssertionError("a host was read")

    monkeypatch.setattr(control_audit, "collect", collect)
    (tmp_path / "gpu2.snapshot.json").write_text("mine")
    with pytest.raises(UsageError, match="--save"):
        audit(TARGETS, Manner((), save=tmp_path))
    os.mkfifo(tmp_path / "gpu1.snapshot.json")
    with pytest.raises(UsageError, match="--save"):
        audit(TARGETS[:1], Manner((), save=tmp_path))


@pytest.mark.parametrize(
    ("shell", "args", "code"),
    [
        ('"$@" >/dev/full', ["audit", SAVED], 74),
        ('"$@" >/dev/full', ["audit", SAVED, "--json"], 74),
        ('"$@" >/dev/full', ["--help"], 74),
        ('"$@" 2>/dev/full', ["audit", "nope.yaml"], 64),
        ('"$@" 2>&-', ["audit", "nope.yaml"], 64),
        ('"$@" <&-', ["explain", "-"], 64),
        ('"$@" >&- 2>&-', ["list-checks"], 0),
        ('"$@" | true; exit ${PIPESTATUS[0]}', ["audit", SAVED, "-v"], 141),
        ('"$@" | true; exit ${PIPESTATUS[0]}', ["audit", SAVED, "--json"], 141),
        ('"$@"', ["audit", "x" * 5000 + ".yaml"], 64),
        ('"$@"', ["audit", SAVED, "--timeout", "nan"], 64),
        ('"$@"', ["audit", SAVED, "--save", ""], 64),
    ],
)
def test_streams_and_words_that_are_no_use_are_a_code_and_no_traceback(shell: str, args: list[str], code: int) -> None:
    done = command(shell, *args)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert all(len(line) < 1100 for line in done.stderr.splitlines())


def test_an_interrupt_while_loading_is_130_without_a_traceback() -> None:
    code = "import sys, types\nclass Late(types.ModuleType):\n    def __getattr__(self, name): raise KeyboardInterrupt\n"
    code += "sys.modules['nearsocket.cli'] = Late('nearsocket.cli')\nfrom nearsocket.__main__ import start\nstart()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "nearsocket: interrupted\n")


def test_a_commands_own_code_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(**_rest: object) -> None:
        sys.exit(7)

    monkeypatch.setattr(cli.cli, "main", leave)
    with pytest.raises(SystemExit) as ended:
        cli.main(["lab"])
    assert ended.value.code == 7
