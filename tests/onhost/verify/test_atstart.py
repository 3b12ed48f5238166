"""The proof in a unit's start, with real ranks: what it finds, where it says so, how it ends, and what never ends an engine."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model import places
from nearsocket.model.host import Engine
from nearsocket.model.settings import OnFar
from nearsocket.model.start import Start
from nearsocket.onhost import fingerprint
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.collect.command import Output
from nearsocket.onhost.verify import atstart, gather, policy, publish, request, supervise
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine, asked, engine, ranks, start

Ranks = tuple[int, int, int]


def prove(machine: Machine, given: Start, system: System | None = None) -> int:
    machine.managed(given)
    return atstart.main([f"--replica={given.replica}"], machine.tree, Systemctl(system or System()))


class System:
    """What systemd is asked for; `refuses` is its answer where it takes no job."""

    def __init__(self, refuses: str = "", see: Callable[[], object] = lambda: None) -> None:
        self.refuses, self.see, self.asked, self.seen = refuses, see, [], []  # type: ignore[var-annotated]

    def __call__(self, argv: Sequence[str], limit_s: float) -> Output:
        self.asked.append(" ".join(argv))
        self.seen.append(self.see())
        return Output(1, "", self.refuses) if self.refuses else Output(0, "", "")


STOP = "systemctl stop --no-block -- nearsocket-sglang-a.service"
RESTART = "systemctl restart --no-block -- nearsocket-sglang-a.service"


def quick(**changes: Any) -> Start:
    """Without a request: what is judged is there already."""
    return start(verify={"request": False, **changes.pop("verify", {})}, **changes)


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


@pytest.mark.parametrize(
    ("on_far", "jobs", "action"), [(OnFar.WARN, [], "none"), (OnFar.FAIL, [STOP], "fail"), (OnFar.RESTART, [], "none")]
)
def test_a_far_start_ends_as_its_policy_says(
    machine: Machine, ranks: Ranks, on_far: OnFar, jobs: list[str], action: str, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    system = System()
    assert prove(machine, quick(policy=on_far), system) == 0
    assert system.asked == jobs
    report = machine.report()
    assert (report["word"], report["action"]) == ("far", action)
    assert machine.metrics()['verdict{replica="a",verdict="far"}'] == 1
    said = capfd.readouterr().err
    assert "verdict on this start: far: 100 % of" in said
    assert "fail nccl.buffer-placement" in said
    if on_far is OnFar.RESTART:
        assert "kept: no other replica of this host serves" in report["reason"]


def test_who_stops_a_far_start_has_left_word_of_it_before_and_the_next_start_takes_it_away(machine: Machine, ranks: Ranks) -> None:
    """The marker makes the unit `failed`; the metric is there for as long as nobody serves."""
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    marker = machine.tree.at(places.acted_marker("a"))
    metric = machine.tree.at(places.stopped_file(places.METRICS, "a"))
    system = System(see=lambda: (marker.exists(), metric.read_text(), machine.report()["action"]))
    prove(machine, quick(policy=OnFar.FAIL), system)
    [(marked, text, action)] = system.seen
    assert (marked, action) == (True, "fail")
    assert text.endswith('# TYPE nearsocket_replica_stopped gauge\nnearsocket_replica_stopped{replica="a"} 1\n')
    assert fingerprint._begun(machine.tree, quick(policy=OnFar.FAIL)) == ()
    assert not marker.exists() and not metric.exists()
    assert machine.report()["word"] == "far", "the last verdict stays"


def test_the_next_start_takes_away_what_lies_where_the_metrics_were_before(machine: Machine, ranks: Ranks) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    before = machine.tree.at("/var/lib/collector")
    before.mkdir(parents=True)
    prove(machine, quick(policy=OnFar.FAIL, verify={"metrics": "/var/lib/collector"}), System())
    assert len(list(before.iterdir())) == 2
    assert fingerprint._begun(machine.tree, quick()) == ()
    assert list(before.iterdir()) == []


@pytest.mark.parametrize("on_far", [OnFar.FAIL, OnFar.RESTART])
def test_where_systemd_takes_no_job_the_engine_serves_on_and_the_verdict_says_so(
    machine: Machine, ranks: Ranks, on_far: OnFar, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    monkeypatch.setattr(policy, "others", lambda tree, name: ["b"])
    monkeypatch.setattr(policy, "serves", lambda tree, name, ask: True)
    system = System("Failed to connect to bus")
    assert prove(machine, quick(policy=on_far), system) == 0
    assert len(system.asked) == 1
    report = machine.report()
    assert (report["word"], report["action"]) == ("far", "none")
    assert "Failed to connect to bus" in report["reason"]
    assert not machine.tree.at(places.acted_marker("a")).exists()
    assert not machine.tree.at(places.stopped_file(places.METRICS, "a")).exists()


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


@pytest.mark.parametrize("on_far", [OnFar.FAIL, OnFar.RESTART])
def test_on_a_frozen_host_a_far_start_is_said_and_nothing_is_done(machine: Machine, ranks: Ranks, on_far: OnFar) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    path = machine.tree.at("/etc/nearsocket/freeze")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("reason: audit week\n")
    assert prove(machine, quick(policy=on_far)) == 0
    report = machine.report()
    assert (report["word"], report["action"]) == ("far", "none")
    assert "audit week" in report["reason"]


def test_a_far_start_beside_one_that_serves_is_restarted_three_times(machine: Machine, ranks: Ranks, tmp_path: Path) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    with engine(tmp_path) as (health, _):
        other = dataclasses.replace(start(health), replica="b", slice="nearsocket-b.slice", unit="b.service")
        one = quick(policy=OnFar.RESTART, window_s=7200)
        machine.managed(one, other)
        machine.started("b", "20260131T100000Z-5")
        found = gather.look(machine.tree, one, atstart.Trigger.START, 20)
        beside = dataclasses.replace(found, replica="b", start="20260131T100000Z-5")
        system = System()
        publish.write(machine.tree.root, "b", beside.to_json())
        for _ in range(4):
            assert atstart.main(["--replica=a"], machine.tree, Systemctl(system)) == 0
        assert system.asked == [RESTART] * 3
        assert machine.tree.at(places.acted_marker("a")).exists(), "what follows in the unit hears of it"
        assert not machine.tree.at(places.stopped_file(places.METRICS, "a")).exists()
        assert "at most once a day" in machine.report()["reason"]
        publish.write(machine.tree.root, "b", dataclasses.replace(beside, start="an older one").to_json())
        assert not policy.serves(machine.tree, "b", lambda url, limit_s: "200"), "its present start was not judged"
        publish.write(machine.tree.root, "b", dataclasses.replace(beside, action=atstart.Action.RESTART).to_json())
        assert not policy.serves(machine.tree, "b", lambda url, limit_s: "200"), "it is being restarted itself"


def test_nothing_of_the_replica_runs_and_no_policy_acts(machine: Machine) -> None:
    machine.gpus(0, ())
    given = quick(policy=OnFar.FAIL, verify={"timeout_s": 10})
    began = time.monotonic()
    assert prove(machine, given) == 0
    assert time.monotonic() - began < 15
    assert (machine.report()["word"], machine.report()["status"]) == ("unknown", "fail")


def test_an_engine_that_hangs_is_judged_by_what_is_there_and_in_time(machine: Machine, ranks: Ranks, tmp_path: Path) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    with engine(tmp_path, "hangs") as (health, _):
        began = time.monotonic()
        system = System()
        assert prove(machine, start(health, OnFar.FAIL, verify={"timeout_s": 12}), system) == 0
        assert system.asked == [STOP]
        assert time.monotonic() - began < 14
    assert any("a request was not answered" in note for note in machine.report()["notes"])


def test_a_key_is_read_from_its_secret_and_is_nowhere_else(
    machine: Machine, ranks: Ranks, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.gpus(0, ranks[1:])
    machine.runs(*ranks)
    secret = machine.tree.at("/etc/secrets/key")
    secret.parent.mkdir(parents=True)
    secret.write_text("canary-in-a-coal-mine\n")
    with engine(tmp_path, key="canary-in-a-coal-mine") as (health, _):
        without = dataclasses.replace(start(health), engine=Engine.VLLM)
        assert prove(machine, without) == 0
        assert any("wants a key (401)" in note for note in machine.report()["notes"])
        given = start(health, verify={"api_key": "KEY"}, secrets={"KEY": "/etc/secrets/key"})
        given = dataclasses.replace(given, engine=Engine.VLLM)
        assert prove(machine, given) == 0
        assert not any("key" in note for note in machine.report()["notes"])
    told = capfd.readouterr().err + machine.tree.at(places.verdict_file("a")).read_text()
    assert "canary" not in told


@pytest.mark.parametrize("key", ["sk-SECRET\r", "sk-SECRET\nX: y", "sk-S\u00c9CRET", "sk-SECRET\x00", ""])
def test_a_key_that_no_header_takes_is_not_sent_and_not_told(tmp_path: Path, key: str) -> None:
    with engine(tmp_path) as (health, seen):
        note = request.send(Engine.SGLANG, health, key, 5)
        assert asked(seen) == []
    assert note is not None and "no HTTP header takes" in note
    assert "sk-" not in note and "CRET" not in note


def test_vllm_is_asked_in_its_own_words(machine: Machine, ranks: Ranks, tmp_path: Path) -> None:
    machine.gpus(0, ranks[1:])
    machine.runs(*ranks)
    with engine(tmp_path) as (health, seen):
        assert prove(machine, dataclasses.replace(start(health), engine=Engine.VLLM)) == 0
        assert [entry[:2] for entry in asked(seen)] == [["GET", "/v1/models"], ["POST", "/v1/completions"]]
        assert asked(seen)[1][2]["model"] == "the/model"


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
