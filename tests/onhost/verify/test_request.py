"""The request that makes NCCL connect: in each engine's words, with its key, which is nowhere else."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from nearsocket.model import places
from nearsocket.model.host import Engine
from nearsocket.model.settings import OnFar
from nearsocket.onhost.verify import request
from tests.onhost.verify.machine import Machine, Ranks, asked, engine, start
from tests.onhost.verify.proving import STOP, System, prove


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
