"""What is done about a far start: each policy's act, what is left word of, and when nothing is done."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nearsocket.model import places
from nearsocket.model.settings import OnFar
from nearsocket.onhost import fingerprint
from nearsocket.onhost.apply.systemctl import Systemctl
from nearsocket.onhost.verify import atstart, gather, policy, publish
from tests.onhost.verify.machine import Machine, Ranks, engine, start
from tests.onhost.verify.proving import RESTART, STOP, System, prove, quick


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
