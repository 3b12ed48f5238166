"""Who holds a GPU is named, and nothing is measured or filled beside them."""

from __future__ import annotations

import dataclasses

import pytest

from nearsocket.model.probe import guard
from tests import build


def test_a_process_that_holds_a_gpu_is_named_and_refused() -> None:
    held = guard.holder(build.host(), ["0000:c1:00.0"])
    assert held is not None
    assert "process 4242 (sglang::scheduler_TP0" in held
    assert "holds GPU 0000:c1:00.0" in held


@pytest.mark.parametrize("given", [("driver= count=0 ids=0 capabilities=gpu",), ("driver= count=-1 ids= capabilities=gpu",)])
def test_a_container_that_was_given_a_gpu_and_still_reads_its_weights_holds_it(given: tuple[str, ...]) -> None:
    box = build.container(gpu_requests=given, command=("python3", "-m", "sglang.launch_server"))
    gpus = tuple(build.gpu(n, memory_used_bytes=0) for n in (0, 1))
    loading = build.host(processes=(), replicas=(), buffers=(), units=(), containers=(box,), gpus=gpus)
    assert guard.holder(loading, ["0000:c1:00.0"]) == "container sglang holds GPU 0000:c1:00.0"
    elsewhere = guard.holder(loading, ["0000:c2:00.0"])
    assert elsewhere is None if "ids=0" in given[0] else elsewhere == "container sglang holds GPU 0000:c2:00.0"


def test_an_idle_host_may_be_measured_and_filled() -> None:
    idle = build.host(
        processes=(), replicas=(), buffers=(), containers=(), gpus=tuple(build.gpu(n, memory_used_bytes=0) for n in (0, 1))
    )
    assert guard.holder(idle, ["0000:c1:00.0"], filling=True) is None


def test_filling_is_refused_while_an_engine_runs_on_other_gpus() -> None:
    assert guard.holder(build.host(), ["0000:ff:00.0"]) is None
    assert "replica" in (guard.holder(build.host(), ["0000:ff:00.0"], filling=True) or "")


def test_gpu_memory_in_use_by_nobody_seen_counts_as_held() -> None:
    idle = build.host(processes=(), replicas=(), buffers=(), containers=())
    hidden = dataclasses.replace(idle, gpus=(build.gpu(0), build.gpu(1, memory_used_bytes=0)))
    assert guard.holder(hidden, ["0000:c2:00.0"]) is None
    assert "GiB of GPU" in (guard.holder(hidden, ["0000:c1:00.0"]) or "")
