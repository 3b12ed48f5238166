"""The checks of NCCL and engines on the fixture snapshots: the verdict of each, and no fault whatever is missing."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest

from nearsocket.model.finding import Finding, Status
from nearsocket.model.host import Host
from nearsocket.model.read import host as read
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus, from_json
from tests.build import worst
from tests.checks.judge import checks, judge

FOLDER = Path(__file__).parents[1] / "data" / "hosts"
PASS, WARN, FAIL, UNKNOWN, NONE = Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN, Status.NOT_APPLICABLE
#: Worst of nccl.buffer-placement, nccl.placement-enforced, nccl.cumem-in-force, engine.binding.
VERDICTS = {
    "two-socket-bound": (PASS, PASS, NONE, PASS),
    "two-socket-far": (FAIL, WARN, FAIL, WARN),
    "no-gpu": (NONE, NONE, NONE, NONE),
    "one-socket": (PASS, PASS, NONE, NONE),
    "snc4": (PASS, PASS, NONE, PASS),
    "snc2-open": (PASS, PASS, NONE, WARN),
    "eight-gpus": (PASS, WARN, FAIL, WARN),
    "two-replicas": (PASS, PASS, NONE, WARN),
    "two-servers-in-one-container": (PASS, WARN, FAIL, WARN),
    "no-source-knows": (UNKNOWN, UNKNOWN, FAIL, UNKNOWN),
    "memoryless-node": (FAIL, FAIL, FAIL, FAIL),
    "vllm-unit": (PASS, PASS, NONE, PASS),
    "h200-pair": (PASS, PASS, NONE, NONE),
}
#: What the checks rest on.
SOURCES = ("processes", "nvml", "containers", "units", "nodes", "cpus", "pci", "nccl.conf", "nccl.logs", "mounts", "driver.files")


@functools.cache
def snapshot(name: str) -> Snapshot:
    return from_json((FOLDER / f"{name}.snapshot.json").read_text(encoding="utf-8"))


def all_findings(host: Host) -> list[Finding]:
    return [finding for id in sorted(checks()) for finding in judge(id, host)]


@pytest.mark.parametrize("name", VERDICTS)
def test_each_fixture_gets_its_verdict(name: str) -> None:
    host = read(snapshot(name))
    ids = ("nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force", "engine.binding")
    assert tuple(worst(judge(id, host)) for id in ids) == VERDICTS[name]


@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.snapshot.json")))
def test_every_check_gives_a_verdict_on_every_fixture(name: str) -> None:
    assert {finding.id for finding in all_findings(read(snapshot(name)))} == set(checks())


@pytest.mark.parametrize("status", [SourceStatus.DENIED, SourceStatus.TIMEOUT, None])
@pytest.mark.parametrize("lost", SOURCES)
def test_a_lost_source_never_turns_into_a_pass_of_placement_that_was_none(lost: str, status: SourceStatus | None) -> None:
    whole = snapshot("two-socket-far")
    sources = {name: source for name, source in whole.sources.items() if name != lost}
    if status is not None:
        sources[lost] = Source(status, reason="not now\n\x1b[31m")
    host = read(dataclasses.replace(whole, sources=sources))
    found = {finding.id: finding.status for finding in all_findings(host)}
    assert found["nccl.buffer-placement"] in (FAIL, UNKNOWN), lost
    assert found["nccl.placement-enforced"] in (WARN, UNKNOWN), lost


def test_the_healthy_host_raises_no_alarm() -> None:
    assert {finding.status for finding in all_findings(read(snapshot("two-socket-bound")))} == {PASS, NONE}
