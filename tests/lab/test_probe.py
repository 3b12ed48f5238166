"""The probes on a machine with two nodes and GPUs for show: where buffers land is real, what far costs is played."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle
from lab.standins.engine import image
from lab.standins.equip import equip
from nearsocket.control.probe import measure
from nearsocket.control.probe.bases import Wish
from nearsocket.control.probe.measure import AllreduceWish, Reading
from nearsocket.control.targets import resolve
from nearsocket.control.transport.process import Children
from nearsocket.model.finding import Status
from nearsocket.model.host import Engine
from nearsocket.model.probe.order import Backend
from nearsocket.model.settings import GpuChoice, Image, ReplicaSettings, Settings
from nearsocket.onhost.probe import standin
from tests.lab.host import LabHost

ROOT = Path(__file__).resolve().parents[2]
RANKS = ("--backend", "standin", "--python", "/usr/bin/python3", "--gpus", "0,1", "--sizes", "12K,1M")
ENGINE = ("--env", "PYTHONPATH=/opt/nearsocket-standin/engine")
CUMEM = ("--env", "NCCL_CUMEM_ENABLE=1")
FILES = ("--env", "NCCL_CUMEM_ENABLE=0")
#: A process of the ranks, found by the module that every one of them runs.
LIVING = "pgrep -f 'nearsocket[.]onhost.probe.launcher' || echo none"


@pytest.fixture(scope="module")
def gpus(lab_state: Path, profile: str) -> LabHost:
    """A machine with stand-ins for GPUs."""
    assert lab_state
    record = lifecycle.up(lifecycle.Wish(name="probes", shape="gpus", profile=profile, timeout_s=600))
    equip(record, record.machines[0])
    return LabHost(record, record.machines[0])


def probe(host: LabHost, kind: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Code and the one report."""
    command = [sys.executable, "-m", "nearsocket", "probe", kind, "inventories/lab.py", "--limit", host.name, "--json"]
    done = subprocess.run([*command, *RANKS, *ENGINE, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    (one,) = json.loads(done.stdout)["probes"]
    return done.returncode, one


def statuses(one: dict[str, Any]) -> dict[str, str]:
    return {finding["id"]: finding["status"] for finding in one["findings"]}


@pytest.mark.timeout(3600)
def test_twenty_draws_are_near_with_the_setting_and_not_without(gpus: LabHost) -> None:
    code, one = probe(gpus, "lottery", *CUMEM, "--draws", "20", "--fill")
    where = {name: [draw["where"] for draw in one["draws"] if draw["name"] == name] for name in ("as configured", "naive")}
    assert where["as configured"] == ["near"] * 20
    assert set(where["naive"]) <= {"far", "split"}
    assert (code, statuses(one)) == (0, {"probe.lottery": "pass"})


def test_the_page_cache_that_filled_a_node_goes_with_the_probe(gpus: LabHost) -> None:
    before = gpus.free_mib()
    probe(gpus, "lottery", *FILES, "--draws", "1", "--fill")
    assert gpus.free_mib() > before - 200


def test_a_contrast_tells_near_from_far(gpus: LabHost) -> None:
    _, one = probe(gpus, "allreduce", *CUMEM, "--contrast", "--limit-s", "600")
    assert statuses(one)["probe.contrast"] == "pass"
    summary = next(finding["summary"] for finding in one["findings"] if finding["id"] == "probe.contrast")
    assert summary.startswith("near pays: far takes")


@pytest.mark.parametrize(
    ("fault", "said"), [("wrong-sum", "wrong sums"), ("dead-rank", "ended with code 1"), ("hang", "not done within 20 s")]
)
def test_a_fault_is_told_and_nothing_keeps_running(gpus: LabHost, fault: str, said: str) -> None:
    code, one = probe(
        gpus, "allreduce", *FILES, "--env", f"{standin.FAULT}={fault}", "--limit-s", "20" if fault == "hang" else "300"
    )
    assert code == 2
    assert said in next(finding["summary"] for finding in one["findings"] if finding["id"] == "probe.allreduce")
    assert gpus.sh(LIVING) == "none"
    assert gpus.sh("ls -d /run/nearsocket/probe-* /dev/shm/nccl-* 2>/dev/null || echo none") == "none"


def test_a_baseline_stays_on_the_machine_and_judges_the_next_run(gpus: LabHost) -> None:
    _, first = probe(gpus, "allreduce", *CUMEM, "--keep-baseline")
    assert statuses(first)["probe.baseline"] == "not-applicable"
    assert gpus.sh("ls /var/lib/nearsocket/baselines | wc -l") == "1"
    _, second = probe(gpus, "allreduce", *CUMEM)
    assert statuses(second)["probe.baseline"] != "not-applicable"


def test_an_engine_that_runs_is_named_and_nothing_is_started(gpus: LabHost) -> None:
    gpus.sh("standin-engine start NCCL_CUMEM_ENABLE=1")
    try:
        command = [sys.executable, "-m", "nearsocket", "probe", "allreduce", "inventories/lab.py", "--limit", gpus.name]
        done = subprocess.run([*command, *RANKS, *ENGINE], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert "refused: process" in done.stderr
        assert "scheduler_TP" in done.stderr
    finally:
        gpus.sh("standin-engine stop")


def test_a_replica_is_probed_in_its_own_image_and_its_ranks_are_found_there(gpus: LabHost) -> None:
    image.load(gpus.record.name, gpus.name, "docker", timeout_s=600)
    (target,) = resolve([str(ROOT / "inventories" / "lab.py")]).limited([gpus.name]).targets
    replica = ReplicaSettings("a", Engine.SGLANG, Image(image.NAME), gpus=GpuChoice(count=2), model="/var/lib/weights")
    wish = Wish(Backend.STANDIN, sizes=(12 << 10,), rounds=2)
    asked = dataclasses.replace(target, settings=Settings((replica,)))
    (report,) = measure.measure(asked, wish, Reading(120.0), AllreduceWish(contrast=True), Children())
    found = {finding.id: finding for finding in report.findings}
    assert found["probe.allreduce"].status is Status.PASS, found
    assert found["nccl.buffer-placement"].status is Status.PASS, found
    assert found["probe.contrast"].summary.startswith("near pays"), found
    assert gpus.sh("docker ps -aq --filter label=nearsocket.probe | wc -l") == "0"
