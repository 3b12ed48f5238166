"""The timer's look: nothing changed is confirmed, a change is judged, and nothing is ever done to an engine."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model import places
from nearsocket.model.settings import OnFar
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.verify import atstart, basis, publish, watch
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine, Ranks, start
from tests.onhost.verify.watching import here, judged, look

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
