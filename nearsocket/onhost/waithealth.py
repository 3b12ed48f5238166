"""ExecStartPost of a replica: wait until the engine answers its health address with 200.

Exit 0: it does; 2: the time is over, or the process that the unit started is gone.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Optional

from nearsocket.model.errors import EXIT_FAILURES, UsageError
from nearsocket.onhost import options
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.startfile import load_start
from nearsocket.onhost.tell import tell

_PAUSE_S = 1.0
#: One question; an engine that loads accepts connections and does not answer.
_ASK_S = 10.0
#: How often a person who reads the journal hears that it still waits.
_SAY_S = 60.0


def main(words: Sequence[str], tree: Tree = Tree()) -> int:  # noqa: B008 - a frozen value
    """The whole program; its exit code."""
    given = options.parse(words, ("replica", "url", "timeout"))
    if "replica" not in given:
        raise UsageError("expected --replica NAME, found none")
    entry = None if "url" in given and "timeout" in given else load_start(tree, given["replica"])
    url = given.get("url") or (entry.health if entry else "")
    limit_s = options.seconds(given["timeout"], 1, 86400) if "timeout" in given else float(entry.start_s if entry else 0)
    pid = os.environ.get("MAINPID", "")
    return wait(url, limit_s, lambda: not pid.isdigit() or tree.at(f"/proc/{pid}").exists())


def wait(
    url: str,
    limit_s: float,
    runs: Callable[[], bool],
    ask: Optional[Callable[[str, float], str]] = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The exit code. `runs`: whether the engine's process is there; `ask`: what the address answers (`200`, or why not)."""
    began = said_at = clock()
    last = ""
    while True:
        if not runs():
            tell(f"the engine ended before it answered {url}; its own lines above say why")
            return EXIT_FAILURES
        left_s = began + limit_s - clock()
        if left_s <= 0:
            tell(f"expected {url} to answer 200 within {limit_s:g} s, found: {last or 'no answer'}")
            return EXIT_FAILURES
        last = (ask or answer)(url, min(_ASK_S, max(left_s, 0.1)))
        if last == "200":
            tell(f"healthy after {clock() - began:.0f} s")
            return 0
        if clock() - said_at >= _SAY_S:
            said_at = clock()
            tell(f"still waiting for {url} after {said_at - began:.0f} s: {last}")
        sleep(_PAUSE_S)


def answer(url: str, limit_s: float) -> str:
    """The status code as text, or in words why there is none. Raises UsageError for what is no http address."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UsageError(f"expected an http address, found {url!r}")
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=limit_s)
    try:
        connection.request("GET", parts.path or "/")
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
