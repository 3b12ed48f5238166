"""What surrounds the checks, and what becomes of hosts that this machine cannot read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nearsocket.control import guard, workers
from nearsocket.control.checks import load
from nearsocket.model.check import Check
from nearsocket.model.errors import UsageError
from nearsocket.model.finding import Finding, Status, warned
from nearsocket.model.host import Host
from tests import build, snapshots

HEAD = (
    "import os, sys, time\nfrom nearsocket.model.check import check\nfrom nearsocket.model.finding import Finding, Status, warned\n"
)
RULE = HEAD + '\n@check("mine.rule")\ndef rule(host):\n    "Own."\n    {body}\n    yield warned(host.name, "mine", [], "nothing")\n'
SAVED = str(snapshots.path("no-gpu"))


def nearsocket(*args: str, before: str = "", **more: object) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own, behind a line of shell."""
    command = ["sh", "-c", f'{before}\nexec "$@"', "sh", sys.executable, "-m", "nearsocket", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    "body", ["sys.exit(0)", "print('noise')", "os.write(1, b'noise')", "raise GeneratorExit", "yield warned(7, 'x', [], 'y')"]
)
def test_a_check_decides_neither_the_exit_code_nor_what_standard_output_has(tmp_path: Path, body: str) -> None:
    (tmp_path / "mine.py").write_text("import os\nprint('noise')\nos.write(1, b'noise')\n" + RULE.format(body=body))
    done = nearsocket("audit", SAVED, "--json", "--checks", str(tmp_path), "--only", "mine.rule")
    whole = json.loads(done.stdout)
    assert (done.returncode, whole["exit_code"]) == (1, 1)
    assert [finding["id"] for finding in whole["hosts"][0]["findings"]] == ["mine.rule"]
    assert "noise" in done.stderr
    assert "Traceback" not in done.stderr


def test_listing_checks_keeps_standard_output_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("print('noise')\n" + RULE.format(body="pass"))
    done = nearsocket("list-checks", "--json", "--checks", str(tmp_path))
    assert "mine.rule" in [entry["id"] for entry in json.loads(done.stdout)]


def test_a_check_that_hangs_is_unknown_after_the_limit() -> None:
    held = threading.Event()

    def hangs(_host: Host) -> list[Finding]:
        held.wait(30)
        return []

    began = time.monotonic()
    (finding,) = guard.limited(Check("a.b", hangs, "x", ""), 0.05).run(build.host())
    held.set()
    assert time.monotonic() - began < 10
    assert (finding.status, finding.id) == (Status.UNKNOWN, "a.b")
    assert "no verdict within 0.05 s" in finding.summary


def test_without_a_thread_a_check_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    check = guard.limited(Check("a.b", lambda host: [warned(host.name, "x", [], "y")], "x", ""))
    assert check.run(build.host())[0].status is Status.WARN
    assert sorted(workers.each(3, lambda number: number * 2, 4)) == [(0, 0), (1, 2), (2, 4)]


def test_a_fifo_among_the_checks_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.py")
    with pytest.raises(UsageError, match="found no regular file"):
        load([tmp_path])


def test_each_gives_every_result_once_and_begins_nothing_after_an_error() -> None:
    assert sorted(workers.each(50, lambda number: number, 8)) == [(number, number) for number in range(50)]
    begun: list[int] = []

    def act(number: int) -> int:
        begun.append(number)
        raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        list(workers.each(1000, act, 1))
    assert len(begun) < 1000


def test_out_of_files_is_a_finding_of_each_host(tmp_path: Path) -> None:
    stand_in = tmp_path / "ssh"
    stand_in.write_text("#!/bin/sh\nexec sleep 3\n")
    stand_in.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    hosts = [f"gpu{number}" for number in range(30)]
    done = nearsocket(
        "audit", *hosts, "--json", "--parallel", "30", "--timeout", "5", "--only", "host.reachable", before="ulimit -n 40", env=env
    )
    whole = json.loads(done.stdout)
    assert len(whole["hosts"]) == 30
    summaries = [host["findings"][0]["summary"] for host in whole["hosts"]]
    assert any("Too many open files" in summary for summary in summaries)
    assert "Traceback" not in done.stderr
    assert done.returncode == whole["exit_code"]


LATE = (
    HEAD
    + """
import threading
from nearsocket.control import guard
guard.LIMIT_S = 0.2
def late():
    while True:
        print("noise")
        os.write(1, b"noise")
        sys.stdout.flush()
        threading.Event().wait(0.001)
"""
)


@pytest.mark.parametrize("form", ["json", "terminal"])
def test_a_check_that_was_left_behind_prints_into_no_report(tmp_path: Path, form: str) -> None:
    (tmp_path / "mine.py").write_text(LATE + RULE.removeprefix(HEAD).format(body="late()"))
    done = nearsocket("audit", SAVED, "--format", form, "--checks", str(tmp_path), "--only", "mine.rule")
    assert "noise" not in done.stdout
    assert "no verdict within 0.2 s" in done.stdout
    assert "noise" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    if form == "json":
        assert json.loads(done.stdout)["exit_code"] == 1


def test_a_reader_that_left_is_told_where_a_check_was_left_behind(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LATE + RULE.removeprefix(HEAD).format(body="late()"))
    words = f"audit {SAVED} --json --checks {tmp_path} --only mine.rule"
    whole = f"({sys.executable} -m nearsocket {words}; echo code $? >&2) | true"
    done = subprocess.run(["sh", "-c", whole], capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "code 141" in done.stderr or "code 1\n" in done.stderr, "the reader may leave before or after"
