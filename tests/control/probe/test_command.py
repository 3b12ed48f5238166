"""`nearsocket probe` from the command line to a verdict: this machine as the host, the stand-in's ranks, a small HTTP engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import audit
from nearsocket.control.probe import ask
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model.probe.baseline import Baseline
from nearsocket.model.probe.starts import Row, Started
from nearsocket.model.snapshot import Snapshot
from nearsocket.onhost.probe import standin
from tests.control.probe.commands import FILES, report, run, statuses
from tests.onhost.probe.engine import Engine, serve
from tests.plan.hosts import four_on_one_socket

pytestmark = pytest.mark.usefixtures("no_baselines")


def test_a_run_is_judged_and_its_own_buffers_are_placed(capsys: pytest.CaptureFixture[str]) -> None:
    code, one = report(capsys, "allreduce", "@local", *FILES)
    assert statuses(one) == {"probe.allreduce": "pass", "nccl.buffer-placement": "pass", "probe.baseline": "not-applicable"}
    assert code == 0
    (table,) = one["measured"]
    assert [size["size_bytes"] for size in table["sizes"]] == [4096, 12288]
    assert all(size["wrong_elements"] == 0 and len(size["rounds_us"]) == 5 for size in table["sizes"])
    assert one["key"]["backend"] == "standin"


def test_a_wrong_sum_ends_with_2_and_is_not_kept(capsys: pytest.CaptureFixture[str], no_baselines: dict[str, Baseline]) -> None:
    code, out, err = run(capsys, "allreduce", *FILES, "--env", f"{standin.FAULT}=wrong-sum", "--keep-baseline")
    assert code == 2
    assert "wrong sums" in out
    assert "--keep-baseline: expected a clean run, found probe.allreduce fail" in err
    assert no_baselines == {}


def test_a_rank_that_dies_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, one = report(capsys, "allreduce", *FILES, "--env", f"{standin.FAULT}=dead-rank")
    assert code == 2
    assert "rank 1: ended with code 1" in one["findings"][0]["summary"]


def test_a_kept_baseline_is_what_the_next_run_is_judged_by(
    capsys: pytest.CaptureFixture[str], no_baselines: dict[str, Baseline]
) -> None:
    assert run(capsys, "allreduce", *FILES, "--keep-baseline")[0] == 0
    assert len(no_baselines) == 1
    _, one = report(capsys, "allreduce", *FILES)
    assert statuses(one)["probe.baseline"] in ("pass", "warn", "fail")  # a busy machine may well be slower
    (kept,) = no_baselines.values()
    assert [size["median_us"] for size in one["baseline"]["sizes"]] == [series.median_us for series in kept.sizes]
    assert one["baseline"]["kept_at"] == kept.kept_at


def test_a_lottery_draws_as_configured_and_naive(capsys: pytest.CaptureFixture[str]) -> None:
    code, one = report(capsys, "lottery", "@local", *FILES, "--draws", "2")
    assert [(draw["name"], draw["where"]) for draw in one["draws"]] == [("as configured", "near"), ("naive", "near")] * 2
    assert (code, statuses(one)) == (0, {"probe.lottery": "pass"})


def test_a_sweep_measures_every_setting_beside_the_one_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    _, one = report(capsys, "allreduce", "@local", *FILES, "--passes", "2", "--sweep", "NCCL_BUFFSIZE=1048576,8388608")
    names = [table["name"] for table in one["measured"]]
    assert sorted(names) == ["NCCL_BUFFSIZE=1048576", "NCCL_BUFFSIZE=8388608", "as configured"]
    assert statuses(one)["probe.sweep"] == "pass"


def test_a_contrast_beside_a_sweep_keeps_its_figures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(target: Target, order: Any, children: Children) -> tuple[Any, ...]:
        rows = tuple(Row(rank, 0, 12288, 5, 10.0, 10.0, 10.0, 10.0, 0, None) for rank in range(4))
        return tuple(Started(one.name, rows, pids=(1, 2, 3, 4)) for one in order.starts)

    monkeypatch.setattr(audit, "collect", lambda target, timeout_s, children: four_on_one_socket())
    monkeypatch.setattr(ask, "run_starts", answer)
    words = ("--python", "/usr/bin/python3", "--contrast", "--sweep", "NCCL_PROTO=LL,Simple")
    _, one = report(capsys, "allreduce", "@local", *words)
    names = {table["name"] for table in one["measured"]}
    assert names == {"as configured", "forced near", "forced far", "NCCL_PROTO=LL", "NCCL_PROTO=Simple"}
    (sweep,) = [finding for finding in one["findings"] if finding["id"] == "probe.sweep"]
    assert {piece["source"] for piece in sweep["evidence"]} == {"NCCL_PROTO=LL", "NCCL_PROTO=Simple"}


def test_an_idle_host_is_measured_on_all_its_gpus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def answer(target: Target, order: Any, children: Children) -> tuple[Any, ...]:
        seen.append(order)
        return tuple(Started(one.name, failed="not here") for one in order.starts)

    def idle(target: Target, timeout_s: float, children: Children) -> Snapshot:
        return four_on_one_socket()

    monkeypatch.setattr(audit, "collect", idle)
    monkeypatch.setattr(ask, "run_starts", answer)
    assert run(capsys, "allreduce", "@local", "--python", "/usr/bin/python3", "--contrast")[0] == 2
    (order,) = seen
    assert [one.name for one in order.starts] == ["as configured", *["forced near", "forced far"] * 2]
    assert len(order.starts[0].ranks.ranks) == 4


def test_cold_prompts_are_timed_through_the_hosts_own_program(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(Engine()) as url:
        words = ("prefill", "@local", "--url", url, "--lengths", "200", "--repeat", "2", "--no-thermal-guard", "--bound", "50")
        code, one = report(capsys, *words)
    assert [prompt["cached_tokens"] for prompt in one["prompts"]] == [0] * 4
    assert statuses(one)["probe.prefill"] in ("pass", "unknown")  # a busy machine's baselines may differ by half
    assert code in (0, 1)


def test_a_cached_run_is_void_and_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(Engine(ignores_salt=True)) as url:
        code, one = report(capsys, "prefill", "@local", "--url", url, "--no-thermal-guard")
    assert code == 2
    assert "void" in one["findings"][0]["summary"]


def test_a_guard_without_nvml_guards_nothing_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a GPU")
    with serve(Engine()) as url:
        code, _, err = run(capsys, "prefill", "@local", "--url", url)
    assert code == 2
    assert "expected NVML to tell the GPUs' temperatures" in err
