"""The timer's look: nothing changed is confirmed at a small price, a change is judged, and nothing is ever done to an engine."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
import types
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control import program
from nearsocket.model import places
from nearsocket.model.settings import OnFar
from nearsocket.model.verdict import Word
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.verify import again, atstart, basis, cgroups, gather, guarded, publish, supervise, watch
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine, start

Ranks = tuple[int, int, int]
#: Bare starts of the interpreter that a watch may cost (docs/verify.md).
MOST_STARTS = 8
PYTHON = "/usr/bin/python3"


#: Maps a buffer as NCCL's when it is told to, and says so.
LATER = """
import mmap, os, sys
sys.stdin.readline()
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
os.unlink(sys.argv[1])
os.ftruncate(fd, 8 << 20)
held = mmap.mmap(fd, 8 << 20)
print("mapped", flush=True)
sys.stdin.readline()
"""

#: Built before NVML is stood in for: the program carries the real pynvml.
PROGRAM = program.build()


def judged(machine: Machine, found: Ranks, node: int = 0) -> None:
    """The replica's start was judged: its ranks run and hold GPUs on that node."""
    machine.gpus(node, found[1:])
    machine.runs(*found)
    machine.managed(start(verify={"request": False, "timeout_s": 90}))
    assert atstart.main(["--replica=a"], machine.tree) == 0


def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are made in this process, so that what a test puts in their place can fail it or remember."""
    monkeypatch.setattr(supervise, "within", lambda limit_s, work, what: work(None))


def look(machine: Machine) -> None:
    assert watch.main(str(machine.tree.root)) == 0


def test_what_did_not_change_is_confirmed_without_a_judgement(
    machine: Machine, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(machine, ranks)
    before = machine.report()
    here(monkeypatch)
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
    here(monkeypatch)
    monkeypatch.setattr(watch, "_judge", pytest.fail)
    look(machine)


def test_a_helper_that_comes_to_have_a_buffer_is_judged(
    machine: Machine, ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there at the verdict, and mattered to nobody."""
    words = [sys.executable, "-c", LATER, str(Path("/dev/shm") / f"nccl-{os.getpid()}")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:
        assert helper.stdin and helper.stdout
        try:
            judged(machine, (*ranks, helper.pid))
            here(monkeypatch)
            asked: list[str] = []
            monkeypatch.setattr(watch, "_judge", lambda root, name, why, voice: asked.append(why))
            look(machine)
            assert asked == []
            helper.stdin.write(b"\n")
            helper.stdin.flush()
            assert helper.stdout.readline() == b"mapped\n"
            look(machine)
            assert asked == [f"process {helper.pid} came to have an nccl- file or a GPU"]
        finally:
            helper.kill()


def test_another_process_under_a_number_that_was_known_is_looked_at(ranks: Ranks) -> None:
    _, first, second = ranks
    known = basis.take([first], [second], "")
    assert basis.same(known, [first, second], "") is None
    ticks, signs = known["others"][str(second)]
    known["others"][str(second)] = [ticks - 1, signs]
    assert basis.same(known, [first, second], "") == f"process {second} is new"


def test_an_unknown_is_judged_again_until_it_is_known(machine: Machine, ranks: Ranks) -> None:
    """NVML gave no answer at the start; later it does."""
    machine.gpus(0, ())
    machine.patch.setitem(sys.modules, "pynvml", None)
    machine.runs(*ranks)
    machine.managed(start(verify={"request": False, "timeout_s": 10}))
    assert atstart.main(["--replica=a"], machine.tree) == 0
    assert machine.report()["word"] == "unknown"
    machine.gpus(0, ranks[1:])
    look(machine)
    assert (machine.report()["word"], machine.report()["trigger"]) == ("near", "watch")


def test_what_a_policy_did_about_a_start_stays_done_when_the_watch_judges_it(machine: Machine, ranks: Ranks) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    given = start(policy=OnFar.FAIL, verify={"request": False, "timeout_s": 20})
    machine.managed(given)
    atstart.main(["--replica=a"], machine.tree, Systemctl(lambda argv, limit_s: Output(0, "", "")))
    before = machine.report()
    folder = machine.started()
    (folder / f"nccl.h.{ranks[1]}").write_text("gpu1:1:1 [0] NCCL INFO NCCL version 2.30.7\n")
    look(machine)
    after = machine.report()
    assert after["trigger"] == "watch"
    assert (after["action"], after["reason"]) == (before["action"], before["reason"]) == ("fail", "stopped by its policy (fail)")


@pytest.mark.parametrize("how", ["a start", "its proof"])
def test_a_look_that_a_start_or_its_proof_overtook_is_not_written(
    machine: Machine, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    judged(machine, ranks)
    real = gather.look

    def slow(*given: object) -> object:
        found = real(*given)  # type: ignore[arg-type]
        if how == "a start":
            machine.started(folder="20260131T120000Z-9")
        else:
            publish.write(machine.tree.root, "a", dataclasses.replace(found, word=Word.FAR).to_json())
        return found

    monkeypatch.setattr(gather, "look", slow)
    said: list[str] = []
    voice = types.SimpleNamespace(tell=lambda line, level="": said.append(line))
    before = machine.report()
    again.judge(machine.tree.root, "a", 20, voice)  # type: ignore[arg-type]
    assert any("is not written" in line for line in said)
    assert machine.report() == before if how == "a start" else machine.report()["word"] == "far"


def test_while_a_proof_decides_nothing_is_confirmed_over_it(
    machine: Machine, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(machine, ranks)
    monkeypatch.setattr(guarded, "_WAIT_S", 0.0)
    with guarded.verdicts(machine.tree.root) as held:
        assert held
        look(machine)
    assert machine.report()["confirmed_at"] is None
    look(machine)
    assert machine.report()["confirmed_at"] is not None


def test_one_replica_that_hangs_in_proc_keeps_no_other_from_being_looked_at(
    machine: Machine, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    judged(machine, ranks)
    machine.managed(start(), start(replica="b", slice="nearsocket-b.slice", unit="b.service"))
    real = cgroups.pids
    monkeypatch.setattr(cgroups, "pids", lambda root, slice_, unit: signal.pause() if "-b." in slice_ else real(root, slice_, unit))
    monkeypatch.setattr(watch, "LOOK_S", 1.0)
    monkeypatch.setattr(watch, "SPARE_S", 1.0)
    for first in (0.0, 900.0):  # whichever is the first
        monkeypatch.setattr(watch.time, "time", lambda first=first: first)
        look(machine)
        assert "the look at b gave no answer" in capfd.readouterr().err
        assert machine.report()["confirmed_at"] is not None


def test_each_time_another_replica_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = [(name, "", "") for name in "abc"]
    orders = []
    for turn in range(3):
        monkeypatch.setattr(watch.time, "time", lambda turn=turn: 900.0 * turn + 5)
        orders.append("".join(name for name, _, _ in watch._turned(replicas)))
    assert orders == ["abc", "bca", "cab"]
    assert watch._turned([]) == []


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
    monkeypatch.setattr(watch, "_judge", lambda root, name, why, voice: asked.append(why))
    here(monkeypatch)
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
    subprocess.run(["strace", "-f", "-e", "trace=execve", "-o", str(trace), *words], check=True)
    calls = [line for line in trace.read_text().splitlines() if "execve(" in line]
    assert len(calls) == 1, calls
