"""The wait between drain and stop: what engines say of their requests, what is done where they say nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.model.errors import UsageError
from nearsocket.onhost import waitidle
from nearsocket.onhost.apply.replicas import established
from nearsocket.onhost.apply.tree import Tree

Answers = dict[str, tuple[int, str]]


def ask(answers: Answers) -> waitidle.Ask:
    """An engine that answers so, 404 elsewhere."""
    return lambda path: answers.get(path, (404, '{"detail": "Not Found"}'))


def loads(*ranks: tuple[int, int]) -> str:
    """SGLang's /v1/loads of those ranks: running, waiting."""
    return json.dumps({"loads": [{"dp_rank": at, "num_running_reqs": r, "num_waiting_reqs": w} for at, (r, w) in enumerate(ranks)]})


SGLANG_OLD = '[{"dp_rank": 0, "num_reqs": 2, "num_waiting_reqs": 1, "num_tokens": 900}]'
VLLM = 'vllm:num_requests_running{engine="0",model_name="m"} 3.0\nvllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
SGLANG_METRICS = '# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 0.0\nsglang:num_queue_reqs{tp_rank="0"} 4.0\n'


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        ({"/v1/loads": (200, loads((1, 2), (0, 1)))}, 4),
        ({"/v1/loads": (200, loads((0, 0)))}, 0),
        ({"/get_load": (200, SGLANG_OLD)}, 3),
        ({"/metrics": (200, VLLM)}, 4),
        ({"/v1/loads": (401, "{}"), "/metrics": (200, SGLANG_METRICS)}, 4),
        ({"/v1/loads": (200, "<html>"), "/get_load": (200, "[]"), "/metrics": (200, "up 1\n")}, None),
        ({}, None),
    ],
)
def test_an_engines_own_count_is_read_as_each_release_tells_it(answers: Answers, count: float | None) -> None:
    found = waitidle.requests(ask(answers))
    assert found is not None
    assert found[0] == count


@given(st.text(max_size=200))
def test_no_text_of_an_engine_is_more_than_no_count(text: str) -> None:
    found = waitidle.requests(ask(dict.fromkeys(("/v1/loads", "/get_load", "/metrics"), (200, text))))
    assert found is not None
    assert found[0] is None or found[0] >= 0


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waited(engine: waitidle.Ask, connections: Callable[[], int] = lambda: 9, limit_s: float = 10.0) -> tuple[int, float]:
    clock = Clock()
    return waitidle.wait(engine, connections, limit_s, clock, clock.sleep), clock.now


def test_an_engine_is_idle_only_when_it_says_so_several_times_in_turn() -> None:
    counts = iter([1, 0, 1, 0, 0, 0])
    code, took_s = waited(lambda _path: (200, loads((next(counts), 0))))
    assert code == 0
    assert took_s == 2.5


def test_an_engine_that_stays_busy_is_stopped_when_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    code, took_s = waited(ask({"/metrics": (200, VLLM)}))
    assert (code, took_s) == (1, 10.0)
    assert "found 4 requests by /metrics; it is stopped all the same" in capsys.readouterr().err


def test_an_engine_that_is_gone_is_not_waited_for_once_that_is_seen_several_times() -> None:
    assert waited(lambda _path: None) == (0, 1.0)
    answers = iter([None, None, (200, loads((1, 0))), None, None, None])
    assert waited(lambda _path: next(answers)) == (0, 2.5)


def test_an_engine_that_takes_a_connection_and_closes_it_is_not_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listener.accept()
                except OSError:
                    return
                with taken:
                    taken.recv(4096)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        code, _ = waited(lambda path: waitidle.ask("127.0.0.1", port, path), lambda: 7)
        assert code == 1
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)


def test_where_the_engine_tells_no_count_its_connections_are() -> None:
    left = iter([2, 1, 0, 0, 0])
    assert waited(ask({}), lambda: next(left)) == (0, 2.0)
    assert waited(ask({}), lambda: 1)[0] == 1


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """A real engine's face with nothing to do."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = loads((0, 0)).encode() if self.path == "/v1/loads" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_the_whole_program_asks_a_real_server(server: HTTPServer) -> None:
    port = int(server.server_address[1])
    assert waitidle.main(["--replica=a", f"--port={port}", "--timeout=30"]) == 0
    assert waitidle.requests(lambda path: waitidle.ask("127.0.0.1", port, path)) == (0, "requests by /v1/loads")


def test_connections_to_a_port_are_counted_on_the_servers_side() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert established(Tree(Path("/")), port) == 0
        with socket.create_connection(("127.0.0.1", port)), listening.accept()[0]:
            assert established(Tree(Path("/")), port) == 1


@pytest.mark.parametrize("words", [["--replica=a"], ["--port=1"], ["--replica=a", "--port=http"], ["--replica=a", "--port=99999"]])
def test_words_that_name_no_replica_or_port_are_a_slip(words: list[str]) -> None:
    with pytest.raises(UsageError):
        waitidle.main(words)
