"""A child process has a deadline, a cap and an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from nearsocket.control.transport.process import Children, Ended, run

BIG = 1 << 26


def shell(script: str, stdin: bytes = b"", timeout_s: float = 20, largest: int = BIG, children: Children | None = None) -> Ended:
    return run(["sh", "-c", script], stdin, timeout_s, children or Children(), largest)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int) -> bool:
    for _ in range(100):
        if not alive(pid):
            return True
        time.sleep(0.02)
    return False


def test_both_streams_and_the_code_come_back() -> None:
    ended = shell("cat; echo words >&2; exit 7", b"in")
    assert (ended.code, ended.stdout, ended.stderr, ended.overflow) == (7, b"in", b"words\n", False)


def test_a_child_that_reads_nothing_does_not_block() -> None:
    assert shell("exec true", b"x" * (1 << 22)).code == 0


def test_a_signal_is_a_negative_code() -> None:
    assert shell("kill -9 $$").code == -signal.SIGKILL


def test_at_the_deadline_the_whole_group_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = shell(f"trap '' TERM; sleep 60 & echo $! >{tmp_path}/pid; echo part; wait", timeout_s=0.5)
    assert (ended.code, ended.stdout) == (None, b"part\n")
    assert time.monotonic() - began < 5
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_child_that_closes_its_pipes_and_stays_is_ended_at_the_deadline() -> None:
    assert shell("exec <&- >&- 2>&-; sleep 60", timeout_s=0.5).code is None


def test_a_grandchild_that_keeps_a_pipe_open_does_not_hold_the_answer_up(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = shell(f"sleep 60 & echo $! >{tmp_path}/pid; echo done")
    assert (ended.code, ended.stdout) == (0, b"done\n")
    assert time.monotonic() - began < 5
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_too_much_output_is_cut_and_the_child_ended() -> None:
    ended = shell("exec cat /dev/zero", largest=1 << 20)
    assert ended.overflow
    assert ended.code is None
    assert len(ended.stdout) < 1 << 21


def test_standard_error_is_kept_up_to_a_cap() -> None:
    assert len(shell("head -c 1000000 /dev/zero >&2").stderr) == 64 << 10


def test_ending_all_ends_what_runs_and_what_comes_later() -> None:
    children = Children()
    found: list[Ended] = []
    worker = threading.Thread(target=lambda: found.append(shell("exec sleep 60", children=children)))
    worker.start()
    while not children._running:
        time.sleep(0.01)
    children.end_all()
    worker.join(5)
    assert found[0].code == -signal.SIGTERM
    assert shell("exec sleep 60", children=children).code == -signal.SIGTERM


def test_a_missing_program_is_an_oserror() -> None:
    with pytest.raises(FileNotFoundError):
        run(["/nowhere/at-all"], b"", 1, Children(), BIG)


def test_no_file_descriptor_is_left() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        shell("exit 1", b"x")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


#: Whoever runs tests in the background, or under nohup, had signals ignored, and an ignored one stays so in every child.
AUDIT = """
import os, signal, sys
signal.signal(int(sys.argv[2]), signal.SIG_DFL)
os.environ["PATH"] = sys.argv[1] + ":" + os.environ["PATH"]
from nearsocket.cli import main
main(["audit", *["gpu%d" % n for n in range(40)], "--parallel", "4"])
"""


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM"), (signal.SIGHUP, "ended by SIGHUP")],
)
def test_an_interrupt_or_termination_ends_the_children(tmp_path: Path, number: signal.Signals, said: str) -> None:
    stand_in = tmp_path / "ssh"
    stand_in.write_text(f"#!/bin/sh\necho $$ >>{tmp_path}/pids\nexec sleep 60\n")
    stand_in.chmod(0o755)
    words = [sys.executable, "-c", AUDIT, str(tmp_path), str(int(number))]
    audit = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pids = tmp_path / "pids"
    while not pids.exists() or len(pids.read_text().split()) < 4:
        assert audit.poll() is None
        time.sleep(0.05)
    audit.send_signal(number)
    out, err = audit.communicate(timeout=20)
    assert audit.returncode == 128 + number
    assert said in err
    assert "Traceback" not in err + out
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 4, "no host is begun after the interrupt"
    assert all(gone(pid) for pid in started)
