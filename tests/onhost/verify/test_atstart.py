"""The proof in a unit's start, with real ranks: what it finds, where it says so, and what never ends an engine."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from nearsocket.model.settings import OnFar
from nearsocket.onhost.verify import atstart, gather, publish, supervise
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine, Ranks, asked, engine, ranks, start
from tests.onhost.verify.proving import System, prove, quick


def test_a_near_start_is_said_in_journal_status_report_and_metrics(
    machine: Machine, ranks: Ranks, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.gpus(0, ranks[1:])
    machine.runs(*ranks)
    address = tmp_path / "notify"
    with engine(tmp_path) as (health, seen), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        assert prove(machine, start(health)) == 0
        status = listener.recv(4096).decode()
        assert asked(seen) == [["POST", "/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}]]
    said = capfd.readouterr().err
    assert "nearsocket: verdict on this start: near by force: 4 ring buffers" in said
    assert status.startswith("STATUS=near by force")
    report = machine.report()
    assert (report["schema"], report["word"], report["held"]) == ("nearsocket.verdict/1", "near", "force")
    assert (report["ranks_found"], report["ranks_planned"], report["action"]) == (2, 2, "none")
    metrics = machine.metrics()
    assert metrics['verdict{replica="a",verdict="near"}'] == 1
    assert metrics['verdict{replica="a",verdict="far"}'] == 0
    assert metrics['start_timestamp_seconds{replica="a"}'] == publish.seconds("2026-01-31T11:00:00Z")
    assert time.time() - 60 < metrics['verdict_timestamp_seconds{replica="a"}'] <= time.time() + 1
    assert metrics['buffer_bytes{replica="a",node="0"}'] == 4 * 2354 * 4096


@pytest.mark.parametrize("fault", [OSError(11, "no process can be made"), MemoryError(), BrokenPipeError()])
def test_a_proof_that_cannot_even_begin_ends_no_engine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, fault: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    def odd(*_: object) -> None:
        raise fault

    monkeypatch.setattr(supervise.children, "fork", odd)
    system = System()
    assert prove(machine, quick(policy=OnFar.FAIL), system) == 0
    assert system.asked == []


def test_nothing_of_the_replica_runs_and_no_policy_acts(machine: Machine) -> None:
    machine.gpus(0, ())
    given = quick(policy=OnFar.FAIL, verify={"timeout_s": 10})
    began = time.monotonic()
    assert prove(machine, given) == 0
    assert time.monotonic() - began < 15
    assert (machine.report()["word"], machine.report()["status"]) == ("unknown", "fail")


@pytest.mark.parametrize("fault", ["raises", "hangs"])
def test_no_fault_of_the_proof_ends_an_engine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def odd(*words: object) -> None:
        if fault == "raises":
            raise RuntimeError("no such thing")
        signal.pause()

    monkeypatch.setattr(gather, "look", odd)
    began = time.monotonic()
    assert prove(machine, quick(policy=OnFar.FAIL, verify={"timeout_s": 10})) == 0
    assert time.monotonic() - began < 13
    assert "the proof of this start" in capfd.readouterr().err
    assert machine.metrics()['verdict_timestamp_seconds{replica="a"}'] == 0


def test_a_missing_record_ends_no_engine(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.tree.at("/etc/nearsocket/current/replicas/a.json").unlink()
    assert atstart.main(["--replica=a"], machine.tree) == 0
    assert "not verified" in capfd.readouterr().err


@pytest.mark.parametrize("words", [[], ["--replica"], ["--replica=../x"], ["--later=1", "--replica=a"]])
def test_words_that_are_not_understood_end_no_engine(machine: Machine, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert atstart.main(words, machine.tree) == 0
    assert "not verified" in capfd.readouterr().err


def test_a_collectors_folder_that_is_not_there_is_said_and_not_made(
    machine: Machine, ranks: Ranks, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.gpus(0, ranks[1:])
    machine.runs(*ranks)
    assert prove(machine, quick(verify={"metrics": "/var/lib/node_exporter"})) == 0
    assert "no metrics" in capfd.readouterr().err
    assert not machine.tree.at("/var/lib/node_exporter").exists()
    assert machine.report()["word"] == "near"


def test_a_stranger_on_the_replicas_gpu_is_noted(machine: Machine, ranks: Ranks) -> None:
    machine.gpus(0, (ranks[1], os.getpid()))
    machine.runs(*ranks)
    prove(machine, quick(verify={"timeout_s": 10}))
    report = machine.report()
    assert any(f"process {os.getpid()} works on GPU 0000:3e:00.0" in note for note in report["notes"])
    assert {one["id"]: one["status"] for one in report["findings"]}["engine.rank-count"] == "fail"


def test_a_worker_that_was_killed_is_missed(machine: Machine) -> None:
    with ranks() as found:
        machine.runs(*found)
        machine.gpus(0, found[1:2])
        machines.kill(found[2])
        assert prove(machine, quick(verify={"timeout_s": 10})) == 0
    assert (machine.report()["ranks_found"], machine.report()["status"]) == (1, "fail")
