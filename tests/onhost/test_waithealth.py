"""Waiting for an engine's health: for 200, no longer than the limit, and not for an engine that is gone."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsocket.onhost import waithealth
from nearsocket.onhost.apply.tree import Tree


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("answers", "runs", "code", "took_s"),
    [
        (["refused", "503", "200"], True, 0, 2),
        (["refused"], True, 2, 60),
        (["refused"], False, 2, 0),
    ],
)
def test_it_waits_for_200_and_no_longer_than_the_limit_or_the_engine(
    answers: list[str], runs: bool, code: int, took_s: float
) -> None:
    clock, left = Clock(), list(answers)
    ask = lambda url, limit_s: left.pop(0) if len(left) > 1 else left[0]  # noqa: E731
    assert waithealth.wait("http://x/health", 60, lambda: runs, ask, clock, clock.sleep) == code
    assert clock.now == took_s


@pytest.fixture
def engine() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_asks_the_address_itself(engine: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waithealth.answer(f"{engine}/health", 5) == "200"
    assert waithealth.answer(f"{engine}/other", 5) == "404"
    assert "refused" in waithealth.answer("http://127.0.0.1:1/health", 5)
    (root / f"proc/{os.getpid()}").mkdir(parents=True)
    monkeypatch.setenv("MAINPID", str(os.getpid()))
    assert waithealth.main(["--replica=a", f"--url={engine}/health", "--timeout=5"], Tree(root)) == 0
    monkeypatch.setenv("MAINPID", "999999")
    assert waithealth.main(["--replica=a", f"--url={engine}/health", "--timeout=5"], Tree(root)) == 2
