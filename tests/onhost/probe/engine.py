"""A small real HTTP server with a prefix cache: what a probe of prompts meets, faults included."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Tokens of one word, as a tokenizer splits words it does not know.
TOKENS_A_WORD = 2


@dataclass
class Engine:
    """What the server does. `bos`: tokens that every prompt shares; `salted`: whether the cache looks at the salt at all;
    `tells`: whether cached tokens are in the answer;
    `key`: what it wants, and says back to who has another; `seen`: the prompts so far.
    """

    bos: int = 0
    ignores_salt: bool = False
    tells: bool = True
    status: int = 200
    body: bytes | None = None
    key: str | None = None
    seen: list[list[str]] = field(default_factory=list)

    def count(self, text: str) -> tuple[int, int]:
        """Tokens of the prompt, and those of its longest prefix that was seen before."""
        words = text.split()
        key = ["same", *(["word"] * (len(words) - 1))] if self.ignores_salt else words
        cached = max((_shared(key, old) for old in self.seen), default=0)
        self.seen.append(key)
        return self.bos + TOKENS_A_WORD * len(words), (self.bos if len(self.seen) > 1 else 0) + TOKENS_A_WORD * cached

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """The answer's JSON by SGLang's own API or OpenAI's."""
        if path == "/v1/models":
            return {"data": [{"id": "model"}]}
        tokens, cached = self.count(body["text"] if path == "/generate" else body["prompt"])
        if path == "/generate":
            assert body["sampling_params"]["max_new_tokens"] == 1
            told = {"cached_tokens": cached} if self.tells else {}
            return {"text": "x", "meta_info": {"prompt_tokens": tokens, **told}}
        assert body["model"] == "model" and body["max_tokens"] == 1
        return {"usage": {"prompt_tokens": tokens, "prompt_tokens_details": {"cached_tokens": cached} if self.tells else None}}


def _shared(one: list[str], other: list[str]) -> int:
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


@contextmanager
def serve(engine: Engine) -> Iterator[str]:
    """The engine on a free port of the loopback address; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: dict[str, Any]) -> None:
            given = self.headers.get("Authorization", "")
            if engine.key is not None and given != f"Bearer {engine.key}":
                data = f"{given} is not the key".encode()
                self.send_response(401)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return
            data = engine.body if engine.body is not None else json.dumps(engine.answer(self.path, body)).encode()
            self.send_response(engine.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
