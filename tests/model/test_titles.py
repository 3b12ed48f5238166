"""Engine, rank and port from what a process calls itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.host import Engine
from nearsocket.model.read import titles
from nearsocket.model.read.titles import Coordinates


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("sglang::scheduler_TP0", Engine.SGLANG),
        ("sglang::detokenizer", Engine.SGLANG),
        ("VLLM::Worker_TP0", Engine.VLLM),
        ("VLLM::EngineCore", Engine.VLLM),
        ("python3 -m sglang.launch_server --tp 2", Engine.SGLANG),
        ("/usr/bin/python3.12 -u -m sglang.srt.entrypoints.http_server", Engine.SGLANG),
        ("python3 /sgl-workspace/sglang/python/sglang/launch_server.py --tp 2", Engine.SGLANG),
        ("sglang serve --model-path m", Engine.SGLANG),
        ("vllm serve m", Engine.VLLM),
        ("/usr/bin/python3 /usr/local/bin/vllm serve m --port=8000", Engine.VLLM),
        ("python -m vllm.entrypoints.openai.api_server --model m", Engine.VLLM),
        ("numactl --membind=1 python3 -m sglang.launch_server", Engine.SGLANG),
        ("numactl --cpunodebind=0 --membind 0 vllm serve m", Engine.VLLM),
        ("env NCCL_DEBUG=INFO taskset -c 0-11 /opt/venv/bin/python3 /opt/venv/bin/vllm serve m", Engine.VLLM),
        ("numactl --membind=0 vllm bench serve --port 1", None),
        ("tini -- vllm serve m", None),
        ("vllm bench serve", None),
        ("docker run --rm sglang:latest python3 -m sglang.launch_server", None),
        ("bash -c python3 -m sglang.launch_server", None),
        ("/usr/bin/podman run vllm serve m", None),
        ("grep sglang::scheduler", None),
        ("python3 -m sglang.bench_serving", None),
        ("vllm bench throughput", None),
        ("vim vllm serve", None),
        ("python3 train.py", None),
        ("", None),
    ],
)
def test_the_command_line_tells_the_engine(command: str, engine: Engine | None) -> None:
    assert titles.engine(command.split(" ") if command else []) is engine
    if "::" not in command and command:
        assert titles.engine([command]) is engine, "a title with spaces in one word"


def test_a_process_without_words_is_known_by_its_name() -> None:
    assert titles.engine([], "VLLM::EngineCor") is Engine.VLLM
    assert titles.engine([""], "sglang::schedul") is Engine.SGLANG
    assert titles.engine([], "vllm") is None
    assert titles.engine(["python3", "x.py"], "VLLM::EngineCor") is None


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("sglang::scheduler_TP0", Coordinates(tp=0)),
        ("sglang::scheduler_DP1_TP3_EP2", Coordinates(tp=3, dp=1, ep=2)),
        ("sglang::scheduler_PP1_TP0", Coordinates(tp=0, pp=1)),
        ("sglang::scheduler", Coordinates()),
        ("VLLM::Worker_DP0_PP1_TP12_EP12", Coordinates(tp=12, pp=1, dp=0, ep=12)),
        ("VLLM::EngineCore_DP1", Coordinates(dp=1)),
        ("python3 a_TP3.py", Coordinates()),
        ("sglang::x_TP9999999", Coordinates()),
        ("", Coordinates()),
    ],
)
def test_the_title_tells_the_place(title: str, expected: Coordinates) -> None:
    assert titles.coordinates(title) == expected


@pytest.mark.parametrize(
    ("command", "port"),
    [
        (("x", "--port", "30000"), 30000),
        (("x", "--port=8000"), 8000),
        (("x --tp 2 --port 8001",), 8001),
        (("x", "--port"), None),
        (("x", "--port", "0"), None),
        (("x", "--port", "70000"), None),
        (("x", "--port", "http"), None),
        ((), None),
    ],
)
def test_the_command_line_tells_the_port(command: tuple[str, ...], port: int | None) -> None:
    assert titles.port(command) == port


@pytest.mark.parametrize(
    ("log", "rank"),
    [
        ("NCCL INFO ncclCommInitRankConfig comm 0x1 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 70 commId 0x1 - Init START", 1),
        ("comm 0x1 rank 0 nranks 1 x\ncomm 0x2 rank 3 nranks 4 x\ncomm 0x2 rank 3 nranks 4 - Init COMPLETE", 3),
        ("comm 0x1 rank 0 nRanks 2 nNodes 1", 0),
        ("rank 0 nranks 2\nrank 1 nranks 2", None),
        ("rank 5 nranks 2", None),
        ("nothing", None),
    ],
)
def test_the_log_tells_the_rank_of_the_largest_communicator(log: str, rank: int | None) -> None:
    assert titles.logged_rank(log) == rank


@given(st.lists(st.text(), max_size=4), st.text())
def test_no_command_makes_it_raise(command: list[str], text: str) -> None:
    titles.engine(command)
    titles.port(command)
    titles.coordinates(text)
    titles.logged_rank(text)
