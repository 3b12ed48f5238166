"""SGLang's HTTP face: the requests that a health check, a monitor, a probe and a client make."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from . import __version__, faults
from .cache import PrefixCache
from .group import Group, RankError

ANSWER_WORD = "stand-in"


@dataclass
class Engine:
    """What the handlers work on. `options` are the server's arguments by name."""

    group: Group
    options: dict[str, Any]
    cache: PrefixCache = field(default_factory=PrefixCache)
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated: int = 0
    #: Requests that were taken and are not answered; those behind the first wait for the ranks.
    taken: int = 0
    counting: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """While the block runs, there is one request more."""
        with self.counting:
            self.taken += 1
        try:
            yield
        finally:
            with self.counting:
                self.taken -= 1

    @property
    def running(self) -> int:
        """Requests that the ranks work on."""
        return min(self.taken, 1)

    def generate(self, text: str, new: int) -> dict[str, Any]:
        """Answer a prompt; the native answer with its meta_info. Raises RankError."""
        started = time.monotonic()
        tokens, cached = self.cache.look_up(text)
        self.group.answer(tokens - cached, new)
        self.requests += 1
        self.prompt_tokens += tokens
        self.cached_tokens += cached
        self.generated += new
        return {
            "text": " ".join([ANSWER_WORD] * new),
            "meta_info": {
                "id": uuid.uuid4().hex,
                "finish_reason": {"type": "length", "length": new},
                "prompt_tokens": tokens,
                "completion_tokens": new,
                "cached_tokens": cached,
                "e2e_latency": time.monotonic() - started,
            },
        }

    def metrics(self) -> str:
        """Prometheus's text format, with the names of SGLang's own counters."""
        label = f'{{model_name="{self.options["served_model_name"]}"}}'
        rows = (
            ("sglang:num_requests_total", "counter", self.requests),
            ("sglang:prompt_tokens_total", "counter", self.prompt_tokens),
            ("sglang:cached_tokens_total", "counter", self.cached_tokens),
            ("sglang:generation_tokens_total", "counter", self.generated),
            ("sglang:num_running_reqs", "gauge", self.running),
            ("sglang:num_queue_reqs", "gauge", self.taken - self.running),
        )
        return "".join(f"# TYPE {name} {kind}\n{name}{label} {value}\n" for name, kind, value in rows)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """Health, information, metrics; flush_cache takes GET and POST, as the real one."""
        engine, path = self.server.engine, self.path.partition("?")[0]
        if path == "/health":
            self._wait_while_hung()
            self._answer(200, "")
        elif path == "/health_generate":
            self._wait_while_hung()
            self._generated(lambda: (engine.generate(f"health {uuid.uuid4().hex}", 1), "")[1])
        elif path in ("/server_info", "/get_server_info"):
            self._answer(
                200, {**engine.options, "version": __version__, "internal_states": [{"connected": engine.group.connected}]}
            )
        elif path in ("/model_info", "/get_model_info"):
            self._answer(200, {"model_path": engine.options["model_path"], "is_generation": True})
        elif path == "/v1/models":
            self._answer(
                200,
                {"object": "list", "data": [{"id": engine.options["served_model_name"], "object": "model", "owned_by": "sglang"}]},
            )
        elif path == "/get_load":  # of releases before /v1/loads; 0.5.10 has it
            self._answer(
                200, [{"dp_rank": 0, "num_reqs": engine.taken, "num_waiting_reqs": engine.taken - engine.running, "num_tokens": 0}]
            )
        elif path == "/metrics" and engine.options["enable_metrics"]:
            self._answer(200, engine.metrics(), "text/plain; version=0.0.4")
        elif path == "/flush_cache":
            self._flush()
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Generation."""
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        except ValueError:
            self._answer(400, {"detail": "the body is no JSON"})
            return
        path = self.path.partition("?")[0]
        engine = self.server.engine
        if path == "/flush_cache":
            self._flush()
        elif path == "/generate" and isinstance(body, dict):
            new = int((body.get("sampling_params") or {}).get("max_new_tokens", 16))
            self._generated(lambda: engine.generate(str(body.get("text", "")), new))
        elif path == "/v1/chat/completions" and isinstance(body, dict):
            self._generated(lambda: self._chat(body))
        else:
            self._answer(404, {"detail": "Not Found"})

    def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        engine = self.server.engine
        text = "\n".join(f"{one.get('role')}: {one.get('content')}" for one in body.get("messages") or [])
        new = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        made = engine.generate(text, new)
        told = made["meta_info"]
        usage: dict[str, Any] = {
            "prompt_tokens": told["prompt_tokens"],
            "completion_tokens": new,
            "total_tokens": told["prompt_tokens"] + new,
            "prompt_tokens_details": None,
        }
        if engine.options["enable_cache_report"]:
            usage["prompt_tokens_details"] = {"cached_tokens": told["cached_tokens"]}
        return {
            "id": told["id"],
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body.get("model") or engine.options["served_model_name"],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": made["text"]}, "finish_reason": "length"}],
            "usage": usage,
        }

    def _flush(self) -> None:
        self.server.engine.cache.flush()
        self._answer(200, "Cache flushed.\n")

    def _wait_while_hung(self) -> None:
        while faults.is_on("hang-health"):
            time.sleep(0.2)

    def _generated(self, make: Any) -> None:
        with self.server.engine.request():
            try:
                answer = 200, make()
            except RankError as error:
                answer = 503, {"error": {"message": str(error)}}
            self._answer(*answer)

    def _answer(self, code: int, content: Any, kind: str = "application/json") -> None:
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind if data else "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print a request as uvicorn does."""
        print(f'INFO:     {self.address_string()} - "{self.requestline}"', flush=True)


class Server(ThreadingHTTPServer):
    """The server with its engine."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], engine: Engine) -> None:
        super().__init__(address, Handler)
        self.engine = engine
