"""The project's checks over every recorded machine, read as an audit reads it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from nearsocket.model.finding import Finding
from nearsocket.model.judge import judge
from nearsocket.model.read import host as read
from nearsocket.model.snapshot import from_json
from tests.checks.judging import ROOT, checks

HOSTS = sorted(path.name.removesuffix(".snapshot.json") for path in (ROOT / "tests" / "data" / "hosts").glob("*.snapshot.json"))


@cache
def judged(name: str) -> tuple[Finding, ...]:
    """The findings of the checks that are tested here on the recorded machine of that name."""
    text = (ROOT / "tests" / "data" / "hosts" / f"{name}.snapshot.json").read_text(encoding="utf-8")
    mine = [check for id, check in checks().items() if not id.startswith(("nccl.", "engine."))]
    return judge(read(from_json(text)), mine)


def statuses(name: str, id: str) -> set[str]:
    return {finding.status.value for finding in judged(name) if finding.id == id}


@pytest.mark.parametrize("name", HOSTS)
def test_no_check_breaks_on_a_recorded_machine(name: str) -> None:
    for finding in judged(name):
        assert "the check itself failed" not in finding.summary
        assert "\n" not in finding.summary
        assert finding.evidence, finding


#: What each machine was made to show. Everything else on it must be quiet.
SHOWN: dict[str, dict[str, str]] = {
    "two-socket-bound": {},
    "two-socket-far": {"memory.near-free": "warn"},
    "no-gpu": {},
    "one-socket": {},
    "one-node-two-packages": {},
    "vm-one-node": {},
    "vm-without-packages": {},
    "vm-nvml-knows": {"topology.gpu-node": "warn"},
    "without-nodes": {},
    "eight-gpus": {},
    "nps4": {},
    "snc4": {},
    "sparse-nodes": {},
    "grace": {},
    "cxl-node": {"topology.node-population": "warn"},
    "memoryless-node": {"topology.node-population": "fail", "memory.near-free": "fail"},
    "sources-disagree": {"topology.gpu-node": "fail", "memory.near-free": "unknown"},
    "no-source-knows": {"topology.gpu-node": "unknown", "memory.near-free": "unknown"},
    "vfio": {"driver.conflicting-module": "warn"},
}
#: A true risk on each of these machines: Docker's hook under systemd's cgroups.
HOOK = "host.daemon-reload-risk"


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_machine_shows_its_fault_and_no_other(name: str) -> None:
    assert name in HOSTS
    loud = {f.id: f.status.value for f in judged(name) if f.status.value not in ("pass", "not-applicable") and f.id != HOOK}
    assert loud == SHOWN[name]


def test_a_machine_without_a_gpu_is_clean_and_says_why() -> None:
    for finding in judged("no-gpu"):
        assert finding.status.value == ("pass" if finding.id == "host.reachable" else "not-applicable")
        assert finding.id == "host.reachable" or "no GPU on this host" in finding.summary


def test_a_machine_of_one_node_knows_its_gpus_node() -> None:
    assert statuses("vm-one-node", "topology.gpu-node") == {"pass"}
    assert statuses("one-socket", "memory.near-free") == {"not-applicable"}


def test_the_programs_own_word_is_in_the_evidence() -> None:
    reachable = next(finding for finding in judged("two-socket-bound") if finding.id == "host.reachable")
    assert "python 3.11.2" in reachable.evidence[0].text


def test_a_judged_snapshot_gives_the_same_findings_again() -> None:
    first = judged("two-socket-far")
    judged.cache_clear()
    assert judged("two-socket-far") == first


def test_the_recorded_folder_is_there() -> None:
    assert Path(ROOT / "tests" / "data" / "hosts").is_dir()
    assert len(HOSTS) >= len(SHOWN)
