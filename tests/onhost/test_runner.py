from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import children, command, runner
from nearsocket.onhost.collect.files import Context, ok_text
from nearsocket.onhost.collect.runner import WIDTH, Job, run_jobs


def run(*jobs: Job, limit_s: float = 20.0) -> dict[str, Source]:
    return run_jobs(jobs, Context(), time.monotonic() + limit_s)


def raises(error: BaseException) -> Callable[[Context], Source]:
    def read(context: Context) -> Source:
        raise error

    return read


def hang(context: Context) -> Source:
    signal.pause()
    return ok_text("never")


def stop(context: Context) -> Source:
    os.kill(os.getpid(), signal.SIGSTOP)
    return ok_text("never")


def ignore_and_hang(context: Context) -> Source:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return hang(context)


def die(context: Context) -> Source:
    os.kill(os.getpid(), signal.SIGKILL)
    return ok_text("never")


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "/x"), SourceStatus.ABSENT, "/x: No such file or directory"),
        (FileNotFoundError("tool is not installed"), SourceStatus.ABSENT, "tool is not installed"),
        (PermissionError(13, "Permission denied", "/x"), SourceStatus.DENIED, "/x: Permission denied"),
        (OSError(5, "Input/output error", "/x"), SourceStatus.ERROR, "/x: Input/output error"),
        (command.CommandTimeout("tool: no answer in 5 s"), SourceStatus.TIMEOUT, "tool: no answer in 5 s"),
        (KeyError("a\nb"), SourceStatus.ERROR, r"KeyError: 'a\nb'"),
    ],
)
def test_a_fault_is_a_status_and_one_line(error: BaseException, status: SourceStatus, reason: str) -> None:
    source = run(Job("a", raises(error)))["a"]
    assert (source.status, source.reason) == (status, reason)


@pytest.mark.parametrize("read", [hang, stop, ignore_and_hang])
def test_a_reader_that_hangs_is_a_time_out_and_the_others_are_read(read: Callable[[Context], Source]) -> None:
    began = time.monotonic()
    sources = run(Job("bad", read, 0.3), Job("good", lambda context: ok_text("x")))
    assert sources["bad"].status is SourceStatus.TIMEOUT and sources["bad"].reason == "no answer in 0.3 s"
    assert sources["good"].text == "x"
    assert time.monotonic() - began < 3


def test_a_reader_that_crashes_is_an_error_that_names_the_signal() -> None:
    source = run(Job("a", die))["a"]
    assert source.status is SourceStatus.ERROR and "ended early" in str(source.reason)


def test_a_command_dies_with_its_reader(tmp_path: Path) -> None:
    def read(context: Context) -> Source:
        return command.source(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"], 50)

    assert run(Job("a", read, 1.0))["a"].status is SourceStatus.TIMEOUT
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 5
    while time.monotonic() < end and Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_source_sees_the_results_that_it_comes_after() -> None:
    def second(context: Context) -> Source:
        return ok_text(f"{context.result('first').text}+{context.result('other').status.value}")

    sources = run(Job("second", second, after=("first",)), Job("first", lambda context: ok_text("1")))
    assert sources["second"].text == "1+absent"


def test_the_whole_limit_cuts_what_runs_and_what_waits() -> None:
    began = time.monotonic()
    sources = run(*[Job(str(n), hang, 60) for n in range(WIDTH + 1)], limit_s=0.4)
    assert {source.status for source in sources.values()} == {SourceStatus.TIMEOUT}
    assert "not reached" in str(sources[str(WIDTH)].reason) and "no answer in" in str(sources["0"].reason)
    assert time.monotonic() - began < 3


def test_a_source_that_others_wait_for_gets_a_third_of_the_whole() -> None:
    sources = run(Job("a", hang, 60), Job("b", lambda context: ok_text("read"), after=("a",)), limit_s=0.9)
    assert sources["a"].reason == "no answer in 0.3 s" and sources["b"].text == "read"


def test_more_time_for_the_whole_is_more_for_each_source_and_command_and_less_is_not_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def command_that_hangs(context: Context) -> Source:
        return command.source(["sleep", "60"], 0.1)

    jobs = (Job("source", hang, 0.2), Job("command", command_that_hangs, 5))
    monkeypatch.setattr(runner, "USUAL_WHOLE_S", 10.0)
    sources = run(*jobs, limit_s=30.0)
    assert sources["source"].reason == "no answer in 0.6 s"
    assert str(sources["command"].reason).startswith("sleep 60: no answer in 0.3")
    assert run(*jobs, limit_s=5.0)["source"].reason == "no answer in 0.2 s"


def test_many_sources_with_large_texts_all_arrive() -> None:
    jobs = [Job(str(n), lambda context, n=n: ok_text(str(n) * 300_000)) for n in range(1, 30)]
    sources = run(*jobs)
    assert all(sources[str(n)].text == str(n) * 300_000 for n in range(1, 30))


def test_readers_hold_no_stream_of_the_program() -> None:
    def read(context: Context) -> Source:
        return ok_text(" ".join(str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3)))

    assert run(Job("a", read))["a"].text == "/dev/null /dev/null /dev/null"


def step(item: int) -> Iterator[dict[str, Any]]:
    yield {"first": item}
    if item == 2:
        signal.pause()
    if item == 3:
        raise ValueError("odd")
    if item == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    yield {"second": item}


def test_a_step_that_hangs_or_dies_costs_its_item_only() -> None:
    results = children.stepwise([1, 2, 3, 4, 5], step, 0.3, time.monotonic() + 20)
    assert [result.parts for result in results] == [
        {"first": 1, "second": 1},
        {"first": 2},
        {"first": 3},
        {"first": 4},
        {"first": 5, "second": 5},
    ]
    assert [result.reason for result in results] == [
        None,
        "no answer in 0.3 s",
        "ValueError: odd",
        "the reader ended early",
        None,
    ]
    assert [result.hung for result in results] == [False, True, False, False, False]
