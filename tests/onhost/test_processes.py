from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import buffers, children, procfs
from nearsocket.onhost.collect import processes as processes_source
from nearsocket.onhost.collect.files import Context
from tests.onhost.actors import crowd, end, line, pair, process, start

# What setproctitle does: the title over the arguments and the environment behind them, zeros after it.
SET_TITLE = """
import ctypes, sys
start, end = None, None
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
begin, stop = int(stat[45]), int(stat[48])
title = eval(sys.argv[1])
ctypes.memset(begin, 0, stop - begin)
ctypes.memmove(begin, title, len(title))
"""


def read(context: Context | None = None) -> dict[int, dict[str, Any]]:
    source = processes_source.processes(context or Context())
    assert source.ok, source.reason
    # What the contract promises is JSON.
    return {entry["pid"]: entry for entry in json.loads(json.dumps(source.data))}


def test_both_ranks_of_a_pair_are_found_with_all_that_the_contract_names() -> None:
    with pair() as ranks:
        found = read()
    for pid in (ranks.owner, ranks.peer):
        entry = found[pid]
        assert entry["ppid"] == os.getpid() and entry["uid"] == os.getuid()
        assert entry["buffers"][0]["file"] == ranks.file and entry["buffers_by"] == "move_pages"
        assert entry["policy_line"].split()[1] == "default"
        assert entry["nspid"][0] == pid
        assert "Mems_allowed_list" in entry["status"] and ":/" in entry["cgroup"]
        assert entry["cpus"] and not entry["vanished"] and entry["unread"] is None
        assert entry["gpu_bytes"] == {} and entry["devices"] == []
        mounted = any(line.split(" ")[4] == "/dev/shm" for line in Path("/proc/self/mountinfo").read_text().splitlines())
        assert (entry["shm_mount"] is not None) == mounted
        assert not mounted or entry["shm_bytes"]["size"] >= entry["shm_bytes"]["free"] > 0


def test_processes_that_do_not_matter_are_left_out() -> None:
    with process("") as pid:
        assert pid not in read()
    assert os.getpid() not in read()


def test_an_engine_is_found_by_its_title_whose_environment_is_wiped() -> None:
    title = b"sglang::scheduler_TP0"
    with process(SET_TITLE, repr(title), env={"NCCL_CUMEM_ENABLE": "1", "PADDING": "x" * 200}) as pid:
        entry = read()[pid]
    assert entry["command"] == ["sglang::scheduler_TP0"]
    assert entry["environ"] is None and entry["environ_reason"] == "wiped"


def test_a_title_with_newlines_and_escapes_is_kept_as_it_is() -> None:
    title = "VLLM::Worker_TP0\n\x1b[31mred\t\udcff".encode("utf-8", "surrogateescape")
    with process(SET_TITLE, repr(title), env={"PADDING": "x" * 200}) as pid:
        entry = read()[pid]
    assert entry["command"] == ["VLLM::Worker_TP0\n\x1b[31mred\t\\xff"]


def test_the_environment_holds_allowed_names_only() -> None:
    env = {"NCCL_DEBUG": "INFO", "VLLM_API_KEY": "canary", "HOME": "/home/x", "NCCL_SECRET_TOKEN": "canary"}
    with process("", argv0="VLLM::EngineCore", env=env) as pid:
        entry = read()[pid]
    assert entry["environ"] == {"NCCL_DEBUG": "INFO"} and entry["environ_reason"] is None
    assert "canary" not in json.dumps(entry)


def test_a_stopped_process_is_read_like_any_other() -> None:
    with pair() as ranks:
        os.kill(ranks.owner, signal.SIGSTOP)
        os.waitid(os.P_PID, ranks.owner, os.WSTOPPED)
        entry = read()[ranks.owner]
    assert "T (stopped)" in entry["status"] and sum(entry["buffers"][0]["pages"].values()) == 64


def test_a_reused_number_is_vanished_and_says_nothing_of_the_newcomer() -> None:
    with process("") as pid:
        parts = list(processes_source.describe(pid, 1))
    assert parts == [{"vanished": True}]


def test_a_process_that_ends_while_it_is_read_is_vanished(monkeypatch: pytest.MonkeyPatch) -> None:
    one = start("print('ready', flush=True); import sys; sys.stdin.read()", argv0="VLLM::EngineCore")
    assert line(one) == "ready"
    steps = processes_source.describe(one.pid, procfs.stat(one.pid).start_ticks)
    first = next(steps)
    end(one)
    rest = list(steps)
    assert first["comm"] and rest[-1] == {"vanished": True}


def test_a_process_named_by_nvml_that_is_not_there_is_vanished_with_its_memory() -> None:
    gone = max(procfs.pids()) + 100_000
    gpu = {"pci": "0000:3d:00.0", "processes": [{"pid": gone, "used_bytes": 5}, {"pid": os.getppid(), "used_bytes": None}]}
    found = read(Context(results={"nvml": Source(SourceStatus.OK, data={"gpus": [gpu]})}))
    assert found[gone]["vanished"] and found[gone]["gpu_bytes"] == {"0000:3d:00.0": 5}
    assert found[os.getppid()]["gpu_bytes"] == {"0000:3d:00.0": None}


def test_a_process_that_hangs_keeps_what_was_read_before_and_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_source, "STEP_LIMIT_S", 0.2)
    real = buffers.measure
    with pair() as ranks:

        def hang(proc: Path, pid: int) -> dict[str, object]:
            if pid == ranks.owner:
                signal.pause()
            return real(proc, pid)

        monkeypatch.setattr(buffers, "measure", hang)
        found = read()
    assert found[ranks.owner]["unread"] == "no answer in 0.2 s" and found[ranks.owner]["comm"]
    assert found[ranks.owner]["buffers_by"] is None
    assert found[ranks.peer]["unread"] is None and found[ranks.peer]["buffers"]


def test_words_that_take_too_long_do_not_cost_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_source, "STEP_LIMIT_S", 0.2)
    with pair() as ranks:
        monkeypatch.setattr(processes_source.redact, "argv", lambda words: signal.pause())
        found = read()
    assert found[ranks.owner]["buffers"] and found[ranks.owner]["unread"] == "no answer in 0.2 s"


def test_a_process_that_hangs_in_the_scan_is_reported_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_source, "STEP_LIMIT_S", 0.2)
    real = procfs.command
    with process("") as pid:

        def hang(other: int) -> list[str]:
            if other == pid:
                signal.pause()
            return real(other)

        monkeypatch.setattr(procfs, "command", hang)
        found = read()
    assert found[pid]["unread"] == "no answer in 0.2 s" and found[pid]["status"]


def test_a_thousand_processes_are_looked_at_in_seconds() -> None:
    with crowd(1000) as pids, pair() as ranks:
        began = time.monotonic()
        found = read()
        took_s = time.monotonic() - began
    assert ranks.owner in found and not set(pids) & set(found)
    assert took_s < 8


def test_without_permission_and_with_a_driver_nothing_found_is_denied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version")

    def scan(pid: int, has_devices: bool) -> Any:
        yield {"unreadable": True}

    monkeypatch.setattr(processes_source, "_scan", scan)
    source = processes_source.processes(Context(tmp_path))
    assert source.status is SourceStatus.DENIED and "no permission to look into" in str(source.reason)
    vouched = Context(tmp_path, {"nvml": Source(SourceStatus.OK, data={"gpus": [{"pci": "x", "processes": []}]})})
    assert processes_source.processes(vouched).ok
    unsaid = Context(tmp_path, {"nvml": Source(SourceStatus.OK, data={"gpus": [{"pci": "x", "processes": None}]})})
    assert processes_source.processes(unsaid).status is SourceStatus.DENIED
    without_driver = processes_source.processes(Context(tmp_path / "none"))
    assert without_driver.ok and "no permission to look into" in str(without_driver.reason)


def test_a_word_of_any_length_costs_no_more_than_its_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    long = b"vllm\0" + b"\xff" * (64 << 10)
    monkeypatch.setattr(procfs, "read_bytes", lambda path, cap: long[: cap + 1])
    assert procfs.command(1) == ["vllm", "<cut>"]
    title = b"VLLM::Worker_TP0 " + b"x" * 20_000
    monkeypatch.setattr(procfs, "read_bytes", lambda path, cap: title[: cap + 1])
    (word,) = procfs.command(1)
    assert word.startswith("VLLM::Worker_TP0 x") and word.endswith("<cut>") and len(word) == 8192 + 5
    monkeypatch.setattr(procfs, "read_bytes", lambda path, cap: b"NCCL_X=" + b"y" * 20_000)
    assert len((procfs.environ(1) or {})["NCCL_X"]) == 8192 + 5


def test_what_nvml_and_the_files_prove_is_described_before_what_only_calls_itself_an_engine() -> None:
    with process("", argv0="VLLM::EngineCore") as first, process("", argv0="VLLM::EngineCore") as listed, pair() as ranks:
        gpu = {"pci": "0000:3d:00.0", "processes": [{"pid": listed, "used_bytes": 5}]}
        found = list(read(Context(results={"nvml": Source(SourceStatus.OK, data={"gpus": [gpu]})})))
    assert found[0] == listed
    assert max(found.index(ranks.owner), found.index(ranks.peer)) < found.index(first)


def test_processes_beyond_the_cap_of_all_are_named_and_not_the_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with process("", argv0="VLLM::EngineCore") as claimed, pair() as ranks:
        whole = read()
        proven = [pid for pid in whole if whole[pid]["buffers"]]
        monkeypatch.setattr(processes_source, "SOURCE_CAP", sum(len(json.dumps(whole[pid])) + 200 for pid in proven))
        source = processes_source.processes(Context())
    found = {entry["pid"]: entry for entry in source.data}
    assert found[ranks.owner]["buffers"] and found[ranks.peer]["buffers"]
    assert found[claimed]["unread"] == "all processes together take more than 16 MiB" and found[claimed]["comm"] == ""
    assert "processes were left out" in str(source.reason)


def test_an_environment_larger_than_its_cap_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {f"NCCL_{n}": "x" * 8000 for n in range(12)}
    with process("", argv0="VLLM::EngineCore", env=env) as pid:
        entry = read()[pid]
    assert entry["environ"] is None and entry["environ_reason"] == "larger than 64 KiB"


def test_the_environment_of_none_is_empty_and_of_an_overwritten_one_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    for data, expected in (
        (b"", {}),
        (b"A=1\0NCCL_X=a=b\0", {"A": "1", "NCCL_X": "a=b"}),
        (b"\0\0\0\0", None),
        (b"duler_TP0\0\0\0B=2\0", None),
        (b"\0\0B=2\0", None),
    ):
        monkeypatch.setattr(procfs, "read_bytes", lambda path, cap, data=data: data)
        assert procfs.environ(1) == expected


def test_kernel_threads_are_told_by_their_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "2 (kthreadd) x) S 0 0 0 0 -1 2129984 " + "0 " * 12 + "17 0"
    monkeypatch.setattr(procfs, "read_text", lambda path: text)
    stat = procfs.stat(2)
    assert stat.kernel_thread and stat.comm == "kthreadd) x" and stat.start_ticks == 17


def test_items_not_reached_before_the_deadline_say_so() -> None:
    results = children.stepwise([1, 2], lambda item: iter([{"a": item}]), 1.0, time.monotonic() - 1)
    assert [result.reason for result in results] == ["not reached within the time limit"] * 2
