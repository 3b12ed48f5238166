"""`nearsocket verify` from the program's answer to the page and the code, and the audit's finding on the last verdicts."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import verify
from nearsocket.control.transport import Answer, TransportError
from nearsocket.control.verify import HostVerdicts
from nearsocket.model import places
from nearsocket.model.exitcode import worst_of
from nearsocket.model.finding import Finding
from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.model.verdict import Held, Verdict, Word
from nearsocket.model.verdicts import laststarts
from nearsocket.onhost.collect.files import Context
from nearsocket.onhost.collect.verdicts import verdicts
from nearsocket.onhost.verify import byhand
from nearsocket.report import terminal
from nearsocket.report import verdicts as pages
from tests import build
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine, Ranks
from tests.onhost.verify.shapes import FOLDER, verdict
from tests.onhost.verify.test_verdicts import cumem, files, without_logs


def said(text: str, host: str = "gpu1", replica: str | None = None) -> HostVerdicts:
    return verify.from_answer(Answer(text.encode() + b"\n", "", 0.0), host, replica)


def answer(machine: Machine, *words: str) -> str:
    return byhand.main([f"--root={machine.tree.root}", *words])


def test_running_replicas_are_judged_and_nothing_is_written(machine: Machine, ranks: Ranks) -> None:
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    before = sorted(machine.tree.root.rglob("*"))
    found = said("motd {\n" + answer(machine))
    assert sorted(machine.tree.root.rglob("*")) == before
    [one] = found.verdicts
    assert (one.word, one.replica, one.trigger.value, found.code()) == (Word.FAR, "a", "hand", 2)


def test_a_replica_that_is_not_there_and_a_host_without_any_are_no_proof(machine: Machine, tmp_path: Path) -> None:
    found = said(answer(machine, "--replica=zz"), replica="zz")
    assert (found.code(), found.reason) == (3, "it has no replica 'zz' (it has a)")
    bare = said(byhand.main([f"--root={tmp_path}"]))
    assert (bare.code(), bare.reason, bare.status.value) == (3, "nearsocket manages nothing here", "unknown")


def test_a_replica_whose_record_is_damaged_is_named(machine: Machine) -> None:
    machine.tree.at("/etc/nearsocket/current/replicas/a.json").write_text("{}")
    found = said(answer(machine))
    assert [one.replica for one in found.silent] == ["a"]
    assert found.code() == 3


@pytest.mark.parametrize(
    "text", ["", "hello", '{"schema": "nearsocket.verdicts/2"}', '{"schema": "nearsocket.verdicts/1", "managed": 3}']
)
def test_another_answer_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(TransportError) as error:
        said(text)
    assert "\n" not in error.value.message


CODES = {
    "near": (files(policy="bind:0"), 0),
    "luck": (files(), 2),  # cuMem is not in force and nothing else holds the buffers, as an audit says
    "far": (files(gpu_node=1), 2),
    "unknown": (without_logs(cumem()), 3),
}


@pytest.mark.parametrize("name", CODES)
def test_the_code_is_that_of_the_findings_and_the_page_says_the_verdict(name: str) -> None:
    value, code = CODES[name]
    host = HostVerdicts("gpu1", (verdict(value),))
    assert host.code() == code
    out = io.StringIO()
    pages.show([verify.page(host)], terminal.console(out, width=120), verbose=True)
    assert host.verdicts[0].line.split(":")[0] in out.getvalue()
    whole = json.loads(pages.render([verify.page(host)], host.status, host.code()))
    assert (whole["schema"], whole["exit_code"]) == ("nearsocket.verify/1", code)
    assert "basis" not in whole["hosts"][0]["verdicts"][0]


def test_text_of_a_host_obeys_no_terminal() -> None:
    odd = dataclasses.replace(verdict(files()), summary="near: \x1b[31mred", notes=("\x1b]0;title\x07",), replica="a\x1b[2J")
    out = io.StringIO()
    pages.show([verify.page(HostVerdicts("gpu1", (odd,)))], terminal.console(out, width=120), verbose=True)
    assert "\x1b" not in out.getvalue()


def test_the_worst_host_decides() -> None:
    hosts = [
        HostVerdicts("a", (verdict(files()),)),
        HostVerdicts("b", reason="nothing"),
        HostVerdicts("c", (verdict(files(gpu_node=1)),)),
    ]
    assert worst_of(host.code() for host in hosts) == 2


# The audit's part.


def audited(found: Verdict | None, **changes: Any) -> Finding:
    """The audit's finding on replica `a`, whose unit is active, ten minutes after the verdict."""
    manifest = changes.pop("manifest", MANIFEST)
    entry = {
        "replica": "a",
        "start": FOLDER,
        "verdict": found.value() if found else None,
        "reason": None if found else "no such file",
    }
    entry.update(changes.pop("entry", {}))
    sources = {"generation": Source(SourceStatus.OK, text=manifest), "verdicts": Source(SourceStatus.OK, data=[entry])}
    host = build.host(taken_at="2026-01-31T12:10:00Z", **changes)
    [finding] = laststarts.judge(dataclasses.replace(host, sources={**host.sources, **sources}))
    return finding


MANIFEST = (Path(__file__).resolve().parents[2] / "data/plan/recipe-podman/manifest.json").read_text()
NAMES = [entry["name"] for entry in json.loads(MANIFEST)["replicas"]]


@pytest.fixture(autouse=True)
def one_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation in force has replica `a` alone."""
    import types

    entry = types.SimpleNamespace(name="a", unit="nearsocket-sglang-a.service")
    monkeypatch.setattr(laststarts.generation, "from_json", lambda text: types.SimpleNamespace(replicas=(entry,)))


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (verdict(files(policy="bind:0")), "pass"),
        (verdict(files()), "warn"),
        (verdict(files(gpu_node=1)), "fail"),
        (verdict(without_logs(cumem())), "unknown"),
        (dataclasses.replace(verdict(files(policy="bind:0")), judged_at="2026-01-31T10:00:00Z"), "warn"),
        (dataclasses.replace(verdict(files(policy="bind:0")), judged_at="x"), "warn"),
        (
            dataclasses.replace(
                verdict(files(policy="bind:0")), judged_at="2026-01-31T10:00:00Z", confirmed_at="2026-01-31T12:09:00Z"
            ),
            "pass",
        ),
        (dataclasses.replace(verdict(files(policy="bind:0")), start="20260130T110000Z-5"), "unknown"),
        (None, "unknown"),
    ],
)
def test_the_last_verdict_and_its_age_are_a_finding_of_the_audit(found: Verdict | None, status: str) -> None:
    made = audited(found)
    assert made.status.value == status, made.summary
    if found is not None and status == "pass":
        assert "min old" in made.summary and found.held is Held.FORCE


def test_a_replica_whose_unit_is_down_has_nothing_to_prove() -> None:
    down = build.unit(id="nearsocket-sglang-a.service", active="failed", sub="failed")
    assert audited(verdict(files(gpu_node=1)), units=(down,)).status.value == "not-applicable"


def test_the_collector_brings_what_the_proof_left(machine: Machine, ranks: Ranks) -> None:
    from nearsocket.onhost.verify import atstart

    assert verdicts(Context(machine.tree.root)).status is SourceStatus.ABSENT
    machine.gpus(0, ranks[1:])
    machine.runs(*ranks)
    machine.managed(machines.start(verify={"request": False, "timeout_s": 10}))
    atstart.main(["--replica=a"], machine.tree)
    machine.tree.at(f"{places.VERDICTS}/b{places.SUFFIX}").symlink_to("/etc/passwd")
    machine.tree.at(f"{places.VERDICTS}/c{places.SUFFIX}").write_text("[" * 100_000)
    first, second, third = verdicts(Context(machine.tree.root)).data
    assert (first["replica"], first["start"], first["verdict"]["word"]) == ("a", machines.STARTED, "near")
    assert "basis" not in first["verdict"]
    assert second["verdict"] is None and second["reason"]
    assert third["verdict"] is None and third["reason"]
