"""The timer's look beside others: starts and proofs that overtake it, a replica that hangs, whose turn is first."""

from __future__ import annotations

import dataclasses
import signal
import time
import types

import pytest

from nearsocket.model.verdict import Word
from nearsocket.onhost.verify import again, cgroups, gather, guarded, publish, watch
from tests.onhost.verify.machine import Machine, Ranks, start
from tests.onhost.verify.watching import here, judged, look


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
