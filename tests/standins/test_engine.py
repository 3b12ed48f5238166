"""The stand-in engine as a host sees it: read by the real collector, judged by the real `explain`."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.explain import explain
from nearsocket.model.finding import Status
from nearsocket.model.parsers import nccl_log
from nearsocket.onhost.collect import processes
from nearsocket.onhost.collect.files import Context
from tests.standins import seccomp
from tests.standins.engine import Running, engine

REAL = Path(__file__).parents[1] / "cases" / "real"
#: Real lines that the kept logs leave out, since no verdict rests on them.
CUT = {
    "NCCL INFO New proxy recv connection N from local rank N, transport N",
    "NCCL INFO New proxy send connection N from local rank N, transport N",
    "NCCL INFO Allocated N bytes of shared memory in /dev/shm/nccl-NAME",
    "NCCL INFO os/linux.cc:N (ncclOsShmOpen) Allocated N bytes of shared memory in /dev/shm/nccl-NAME",
}
RING_BYTES, CONTROL_BYTES = 2354 * 4096, 2 * 4096


def collected(running: Running) -> list[dict[str, Any]]:
    source = processes.processes(Context())
    assert source.ok, source.reason
    pids = set(running.rank_pids())
    return [entry for entry in json.loads(json.dumps(source.data)) if entry["pid"] in pids]


def verdicts(file: str, text: str) -> dict[str, Status]:
    return {finding.id: finding.status for finding in explain(file, text, frozenset({0})).findings}


def numa_maps(running: Running) -> str:
    return "".join(Path(f"/proc/{pid}/numa_maps").read_text() for pid in running.rank_pids())


def test_a_stop_ends_it_as_the_real_one_ends_by_its_own_sigkill_and_no_rank_stays(tmp_path: Path) -> None:
    """A container runtime says 137 of that."""
    with engine(tmp_path, NCCL_CUMEM_ENABLE="0") as running:
        ranks = [os.pidfd_open(pid) for pid in running.rank_pids()]
        running.process.terminate()
        assert running.process.wait(60) == -signal.SIGKILL
    for rank in ranks:
        poller = select.poll()
        poller.register(rank, select.POLLIN)
        assert poller.poll(30_000), "a rank lives on"
        os.close(rank)


def test_with_the_variable_off_ranks_show_titles_wiped_environments_and_the_files_that_real_ranks_have(tmp_path: Path) -> None:
    with engine(tmp_path, NCCL_CUMEM_ENABLE="0") as running:
        ranks = collected(running)
        assert [entry["command"][0] for entry in ranks] == ["sglang::scheduler_TP0", "sglang::scheduler_TP1"]
        assert {entry["comm"] for entry in ranks} == {"sglang::schedul"}
        assert {entry["environ_reason"] for entry in ranks} == {"wiped"}
        sizes = [sorted(buffer["length"] for buffer in entry["buffers"]) for entry in ranks]
        assert sizes[0] == sizes[1] == [CONTROL_BYTES] * 8 + [RING_BYTES] * 8 + [8353 * 4096] * 2
        assert all(buffer["deleted"] for entry in ranks for buffer in entry["buffers"])
        pools = [sorted(sum(b["pages"].values()) for b in entry["buffers"] if b["length"] == 8353 * 4096) for entry in ranks]
        assert pools == [[1, 8353], [1, 8353]]
        shared = [{buffer["inode"] for buffer in entry["buffers"] if buffer["length"] < 8353 * 4096} for entry in ranks]
        assert shared[0] == shared[1] and len(shared[0]) == 16
        text = numa_maps(running)
    facts = explain("numa_maps", text, frozenset({0})).facts
    assert sum(buffer["role"] == "ring" for buffer in facts["buffers"]) == 8
    assert sum(buffer["role"] == "proxy-pool" for buffer in facts["buffers"]) == 2


def test_with_the_variable_off_the_log_says_files(tmp_path: Path) -> None:
    with engine(tmp_path, NCCL_CUMEM_ENABLE="0") as running:
        log = running.log()
    assert verdicts("nccl.log", log)["nccl.cumem-in-force"] is Status.FAIL
    facts = explain("nccl.log", log, frozenset({0})).facts
    assert facts["host_buffers"]["mmap"] == 8 and facts["host_buffers"]["cumem"] == 0 and facts["ranks"] == 2


def test_the_engine_sets_the_variable_to_0_where_the_user_has_none(tmp_path: Path) -> None:
    with engine(tmp_path) as running:
        log = nccl_log.parse(running.log())
    assert {entry.value for entry in log.values("NCCL_CUMEM_ENABLE")} == {"0"}


def test_symmetric_memory_forces_the_variable_to_1(tmp_path: Path) -> None:
    with engine(tmp_path, "--enable-symm-mem", NCCL_CUMEM_ENABLE="0") as running:
        log = nccl_log.parse(running.log())
    assert {entry.value for entry in log.values("NCCL_CUMEM_ENABLE")} == {"1"}


def test_with_cumem_it_connects_at_the_first_request_and_makes_no_file(tmp_path: Path) -> None:
    with engine(tmp_path, "--skip-server-warmup", NCCL_CUMEM_ENABLE="1") as running:
        before = running.log()
        assert "Init COMPLETE" in before and "CUMEM allocated" not in before
        assert running.post("/generate", {"text": "a b c"})[0] == 200
        log = running.log()
        assert all(entry["buffers"] == [] for entry in collected(running))
    assert verdicts("nccl.log", log) == {"nccl.buffer-placement": Status.PASS, "nccl.cumem-in-force": Status.PASS}
    assert explain("nccl.log", log, frozenset({0})).facts["host_buffers"]["cumem"] == 8


@pytest.mark.parametrize("version", ["2.28.9", "2.30.7"])
@pytest.mark.parametrize("cumem", ["0", "1"])
def test_every_line_has_the_shape_of_a_line_that_the_real_version_wrote(tmp_path: Path, version: str, cumem: str) -> None:
    with engine(tmp_path, NCCL_CUMEM_ENABLE=cumem, NEARSOCKET_STANDIN_NCCL=version) as running:
        log = running.log()
    case = "shm-cumem-on" if cumem == "1" else "shm-cumem-off"
    real = {shape(line) for line in (REAL / f"log-{version}-{case}.txt").read_text().splitlines()}
    ours = {shape(line) for line in log.splitlines()}
    assert ours - real <= {"NCCL INFO NCCL version N+cuda13.N (stand-in: no GPU here)", *CUT}
    assert len(ours & real) >= 9


def shape(line: str) -> str:
    """A line without what differs from run to run: origin, numbers, addresses, names; an affinity's CPU lists."""
    text = re.sub(r"^\S+ \[\d+\] ", "", line)
    text = re.sub(r"nccl-\w{6}", "nccl-NAME", text)
    text = re.sub(r"is (empty, ignoring|[\d,-]+)\. \(GPU affinity = [\d,-]*", "is CPUS. (GPU affinity = ", text)
    text = re.sub(r"CPU affinity = [\d,-]+", "CPU affinity = CPUS", text)
    text = re.sub(r"\b(?:0x[0-9a-f]+|(?=[0-9a-f]*[0-9])[0-9a-f]+)\b(\.\d+)*", "N", text)
    return re.sub(r"( N)+$", " N", re.sub(r"(Channel N(?:/N)? :)( N)+$", r"\1 N", text))


def test_an_address_without_a_decimal_digit_is_an_address_too() -> None:
    assert shape("comm 0xbfdcde rank 1") == shape("comm 0x7f01 rank 0") == "comm N rank N"


def test_a_filter_on_mbind_makes_nccl_fall_back_with_its_line(tmp_path: Path) -> None:
    launcher = tmp_path / "python"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{seccomp.__file__}" "{sys.executable}" "$@"\n')
    launcher.chmod(launcher.stat().st_mode | stat.S_IXUSR)
    with engine(tmp_path, python=str(launcher), NCCL_CUMEM_ENABLE="1") as running:
        assert running.post("/generate", {"text": "move_pages is forbidden too"})[0] == 200
        log = running.log()
    facts = explain("nccl.log", log, frozenset({0})).facts
    assert facts["fallback"] is True and facts["host_buffers"]["mmap"] == 8
    assert verdicts("nccl.log", log)["nccl.cumem-in-force"] is Status.FAIL


def test_host_enable_0_keeps_files_without_a_fallback_line(tmp_path: Path) -> None:
    with engine(tmp_path, NCCL_CUMEM_ENABLE="1", NCCL_CUMEM_HOST_ENABLE="0") as running:
        log = running.log()
    facts = explain("nccl.log", log, frozenset({0})).facts
    assert facts["fallback"] is False and facts["host_buffers"]["mmap"] == 8
    assert facts["env"]["NCCL_CUMEM_HOST_ENABLE"] == "0"


def test_two_ranks_in_one_process_use_files_whatever_the_variable(tmp_path: Path) -> None:
    with engine(tmp_path, faults=("legacy",), NCCL_CUMEM_ENABLE="1") as running:
        assert len(running.rank_pids()) == 1
        log = running.log()
    finding = next(f for f in explain("nccl.log", log, frozenset({0})).findings if f.id == "nccl.cumem-in-force")
    assert finding.status is Status.FAIL and "process" in finding.summary


def test_the_buffer_size_follows_nccl_buffsize_as_measured(tmp_path: Path) -> None:
    with engine(tmp_path, NCCL_CUMEM_ENABLE="0", NCCL_BUFFSIZE=str(1 << 20)) as running:
        log = running.log()
    pages = max(
        int(m) for m in re.findall(r"nccl-\S+ dirty=(\d+)", (REAL / "maps-2.28.9-buffsize-1-mib.txt").read_text()) if int(m) < 8000
    )
    (size,) = {int(m) for m in re.findall(r"MMAP allocated shareable host buffer \S+ size (\d{5,})", log)}
    assert -(-(size + 4) // 4096) == pages


def test_a_dead_rank_leaves_a_server_that_answers_health_and_nothing_else(tmp_path: Path) -> None:
    with engine(tmp_path, NCCL_CUMEM_ENABLE="0") as running:
        first, second = running.rank_pids()
        handle = os.pidfd_open(second)
        (running.faults / "dead-rank").write_text("1")
        wait_for_end(handle)
        assert running.get("/health")[0] == 200
        assert running.post("/generate", {"text": "a"})[0] == 503
        assert Path(f"/proc/{first}").exists()


def wait_for_end(handle: int) -> None:
    with os.fdopen(handle):
        assert select.select([handle], [], [], 20)[0]


def test_health_hangs_while_the_fault_is_on_and_answers_after_it(tmp_path: Path) -> None:
    with engine(tmp_path, NCCL_CUMEM_ENABLE="0") as running:
        (running.faults / "hang-health").touch()
        with pytest.raises(TimeoutError):
            running.get("/health", timeout_s=0.3)
        (running.faults / "hang-health").unlink()
        assert running.get("/health") == (200, "")
        assert running.get("/health_generate")[0] == 200


def test_cached_tokens_are_told_natively_always_and_in_usage_only_when_asked_for(tmp_path: Path) -> None:
    with engine(tmp_path, "--enable-metrics", NCCL_CUMEM_ENABLE="0") as running:
        prompt = {"text": "one two three four", "sampling_params": {"max_new_tokens": 2}}
        assert running.post("/generate", prompt)[1]["meta_info"]["cached_tokens"] == 0
        again = running.post("/generate", prompt)[1]["meta_info"]
        assert (again["prompt_tokens"], again["cached_tokens"], again["completion_tokens"]) == (4, 3, 2)
        assert running.get("/flush_cache")[0] == 200
        assert running.post("/generate", prompt)[1]["meta_info"]["cached_tokens"] == 0
        chat = {"model": "m", "messages": [{"role": "user", "content": "one two"}], "max_tokens": 2}
        assert running.post("/v1/chat/completions", chat)[1]["usage"]["prompt_tokens_details"] is None
        assert 'sglang:cached_tokens_total{model_name="' in running.get("/metrics")[1]
        assert json.loads(running.get("/server_info")[1])["version"].endswith("+standin")
        assert running.get("/nothing")[0] == 404


def test_usage_tells_cached_tokens_with_the_cache_report(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 2}
    with engine(tmp_path, "--enable-cache-report", NCCL_CUMEM_ENABLE="0") as running:
        running.post("/v1/chat/completions", chat)
        answer = running.post("/v1/chat/completions", chat)[1]
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 3} and answer["model"].endswith("weights.bin")


def test_too_few_gpus_end_it_with_a_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="expected 2 visible GPUs, found 1"), engine(tmp_path, CUDA_VISIBLE_DEVICES="1"):
        pass


def test_the_weights_are_read_whole(tmp_path: Path) -> None:
    from lab.standins.engine.sglang import weights

    (tmp_path / "a.safetensors").write_bytes(b"x" * (9 << 20))
    (tmp_path / "b.safetensors").write_bytes(b"x" * 17)
    (tmp_path / "config.json").write_text("{}")
    assert [weights.read(str(tmp_path), rank, 2) for rank in (0, 1)] == [(4 << 20) + (1 << 20) + 17, 4 << 20]
    assert weights.read("org/name-of-a-hub", 0, 1) == 0
