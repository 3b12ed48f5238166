"""The timer's look: nothing changed is confirmed at a small price, a change is judged, and nothing is ever done to an engine."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control import program
from nearsocket.model import places
from nearsocket.onhost.verify import atstart, publish, watch
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine, start

Ranks = tuple[int, int, int]
#: Bare starts of the interpreter that a watch may cost (docs/verify.md).
MOST_STARTS = 8
PYTHON = "/usr/bin/python3"


#: Built before NVML is stood in for: the program carries the real pynvml.
PROGRAM = program.build()


def judged(machine: Machine, found: Ranks, node: int = 0) -> None:
    """The replica's start was judged: its ranks run and hold GPUs on that node."""
    machine.gpus(node, found[1:])
    machine.runs(*found)
    machine.managed(start(verify={"request": False, "timeout_s": 10}))
    assert atstart.main(["--replica=a"], machine.tree) == 0


def look(machine: Machine) -> None:
    assert watch.main(str(machine.tree.root)) == 0


def test_what_did_not_change_is_confirmed_without_a_judgement(
    machine: Machine, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(machine, ranks)
    before = machine.report()
    monkeypatch.setattr(watch, "_judge", pytest.fail)
    monkeypatch.setattr(publish, "now", lambda: "2026-02-01T00:00:00Z")
    look(machine)
    after = machine.report()
    assert after == {**before, "confirmed_at": "2026-02-01T00:00:00Z"}
    assert machine.metrics()['verdict_timestamp_seconds{replica="a"}'] == publish.seconds("2026-02-01T00:00:00Z")


def test_a_worker_that_died_is_found_whatever_the_api_answers(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    with machines.ranks() as found:
        judged(machine, found)
        machine.gpus(0, found[1:2])
        machines.kill(found[2])
        look(machine)
        report = machine.report()
    assert (report["trigger"], report["status"], report["ranks_found"]) == ("watch", "fail", 1)
    assert machine.metrics()['ranks_found{replica="a"}'] == 1
    assert f"process {found[2]}" in capfd.readouterr().err


def test_buffers_that_were_made_later_are_judged(machine: Machine, ranks: Ranks) -> None:
    judged(machine, ranks)
    with machines.ranks(1) as more:
        machine.runs(*ranks, *more)
        machine.gpus(1, (*ranks[1:],))
        look(machine)
        assert machine.report()["word"] == "far"


def test_a_helper_that_came_later_changes_nothing(machine: Machine, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(machine, ranks)
    machine.runs(*ranks, os.getpid())
    monkeypatch.setattr(watch, "_judge", pytest.fail)
    look(machine)


def test_a_log_that_grew_is_read_again(machine: Machine, ranks: Ranks) -> None:
    judged(machine, ranks)
    folder = machine.tree.at(f"{places.replica_folder('a')}/20260131T110000Z-77")
    (folder / f"nccl.h.{ranks[1]}").write_text("gpu1:1:1 [0] NCCL INFO NCCL version 2.30.7\n")
    look(machine)
    assert machine.report()["trigger"] == "watch"


def test_the_metrics_of_a_replica_that_stopped_go(machine: Machine, ranks: Ranks) -> None:
    judged(machine, ranks)
    machine.runs()
    look(machine)
    assert not machine.tree.at(places.metrics_file(places.METRICS, "a")).exists()
    assert machine.report()["word"] == "near", "the last verdict stays"


def test_a_start_that_is_being_proven_is_left_alone_and_one_that_never_was_is_not(
    machine: Machine, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(machine, ranks)
    asked: list[str] = []
    monkeypatch.setattr(watch, "_judge", lambda root, name, why: asked.append(why))
    machine.started(folder=time.strftime("%Y%m%dT%H%M%SZ-9", time.gmtime()))
    look(machine)
    assert asked == []
    machine.started(folder="20260131T120000Z-9")
    look(machine)
    assert asked == ["it was not judged at its start"]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"schema": "nearsocket.verdict/1"}', '{"schema": "nearsocket.verdict/1", "start": 3}', "\0"]
)
def test_a_damaged_report_is_made_anew(machine: Machine, ranks: Ranks, text: str) -> None:
    judged(machine, ranks)
    machine.tree.at(places.verdict_file("a")).write_text(text)
    look(machine)
    assert machine.report()["word"] == "near"


def test_a_host_that_manages_nothing_is_no_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert watch.main(str(tmp_path)) == 0
    (tmp_path / "etc/nearsocket/current").mkdir(parents=True)
    (tmp_path / "etc/nearsocket/current/manifest.json").write_text("[")
    assert watch.main(str(tmp_path)) == 0
    assert "nearsocket: expected the manifest" in capfd.readouterr().err


@given(st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31)))
def test_a_moment_is_the_calendars(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    assert publish.seconds(moment.strftime("%Y-%m-%dT%H:%M:%SZ")) == moment.replace(tzinfo=UTC).timestamp()


def cost_s(words: list[str]) -> float:
    """Processor time of the best of several runs: what else the machine does comes on top of the others."""
    times = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median_low(sorted(times)[:3])


@pytest.mark.skipif(not Path(PYTHON).exists(), reason="no python3 of the system")
def test_a_watch_costs_at_most_eight_bare_starts_of_the_interpreter(machine: Machine, ranks: Ranks, tmp_path: Path) -> None:
    judged(machine, ranks)
    file = tmp_path / "nearsocket.pyz"
    file.write_bytes(PROGRAM)
    words = [PYTHON, "-I", "-B", str(file), "watch", f"--root={machine.tree.root}"]
    watched, bare = cost_s(words), cost_s([PYTHON, "-I", "-B", "-c", "pass"])
    assert machine.report()["confirmed_at"], "it took the short way"
    assert machine.report()["trigger"] == "start"
    assert watched <= MOST_STARTS * bare, f"{watched * 1000:.0f} ms against {bare * 1000:.0f} ms"


@pytest.mark.skipif(not Path("/usr/bin/strace").exists(), reason="no strace")
def test_a_watch_starts_no_command(machine: Machine, ranks: Ranks, tmp_path: Path) -> None:
    judged(machine, ranks)
    file, trace = tmp_path / "nearsocket.pyz", tmp_path / "trace"
    file.write_bytes(PROGRAM)
    words = [PYTHON, "-I", "-B", str(file), "watch", f"--root={machine.tree.root}"]
    subprocess.run(["strace", "-f", "-e", "trace=execve,fork,vfork,clone,clone3", "-o", str(trace), *words], check=True)
    calls = [line for line in trace.read_text().splitlines() if "(" in line and "exited" not in line]
    assert len(calls) == 1, calls
