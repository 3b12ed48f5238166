"""One request to a healthy engine: with cuMem on, NCCL's rings connect at the first collective, and before it nothing can be seen.

SGLang's own face is `/generate`; vLLM's is OpenAI's, where the model has to be named first. One token is asked for.
"""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.parse
from typing import Any, Optional

from nearsocket.model.host import Engine
from nearsocket.model.text import one_line

_PROMPT = "Hello"
_LARGEST_ANSWER = 1 << 20
#: What a header's value can be made of (RFC 9110, field-value), blanks at its ends aside.
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def send(engine: Engine, health: str, key: Optional[str], limit_s: float) -> Optional[str]:
    """Send it; None where it was answered, else why not, in a line that has nothing of the key in it."""
    end = time.monotonic() + limit_s
    if key is not None and not _KEY.fullmatch(key):
        return "no request was sent: the engine's key has characters that no HTTP header takes (a line break, for one)"
    try:
        if engine is Engine.SGLANG:
            body: Any = {"text": _PROMPT, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
            status, answer = _ask(health, "POST", "/generate", body, key, end)
        else:
            status, answer = _ask(health, "GET", "/v1/models", None, key, end)
            if status == 200:
                body = {"model": _model(answer), "prompt": _PROMPT, "max_tokens": 1, "temperature": 0}
                status, answer = _ask(health, "POST", "/v1/completions", body, key, end)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"a request was not answered within {limit_s:g} s: {_without(key, str(error) or type(error).__name__)}"
    if status == 200:
        return None
    if status in (401, 403):
        return f"the engine wants a key ({status}): name its secret as verify.api_key in the fleet file"
    return f"a request was answered with {status}: {_without(key, answer.decode('utf-8', 'replace'))}"


def _ask(health: str, method: str, path: str, body: Any, key: Optional[str], end: float) -> tuple[int, bytes]:
    parts = urllib.parse.urlsplit(health)
    left_s = end - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the time is over")
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=left_s)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        return response.status, response.read(_LARGEST_ANSWER)
    finally:
        connection.close()


def _without(key: Optional[str], text: str) -> str:
    """The text in a short line, and nothing of the key in it, whatever repeats it."""
    return one_line(text.replace(key, "(the key)") if key else text, 100)


def _model(answer: bytes) -> str:
    """The first model's name. Raises ValueError."""
    try:
        return str(json.loads(answer)["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise ValueError("expected a model's name from /v1/models, found none") from None
