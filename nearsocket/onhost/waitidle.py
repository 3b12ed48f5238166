"""ExecStop of a replica, between the drain hook and the stop: wait until the engine has no request left.

The engine's own count decides: SGLang's /v1/loads, /get_load before it, vLLM's and SGLang's gauges in /metrics. An engine that
tells none (a key is wanted, metrics are off) is idle once no TCP connection to its port is left. vLLM's /load is not asked:
without --enable-server-load-tracking it says 0 whatever runs.

Exit 0: idle, or the engine is gone; 1: the time is over, and the stop goes on.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

from nearsocket.model.errors import EXIT_WARNINGS, UsageError
from nearsocket.onhost import options
from nearsocket.onhost.apply.replicas import established
from nearsocket.onhost.apply.tree import Tree
from nearsocket.onhost.tell import WARNING, tell

_PAUSE_S = 0.5
#: One question; counts of an engine come at once.
_ASK_S = 5.0
_LARGEST_BYTES = 8 << 20
#: Zero seen that often in turn: the gauges follow a request with a delay, and a request may be on its way at the first look.
_TIMES = 3
#: Gauges of requests that run or wait, by the engines' own names.
_GAUGES = ("sglang:num_running_reqs", "sglang:num_queue_reqs", "vllm:num_requests_running", "vllm:num_requests_waiting")

#: What an address answers: status and text; None where nobody listens, which is seen `_TIMES` times in turn before it counts.
Ask = Callable[[str], Optional[tuple[int, str]]]


def main(words: Sequence[str], tree: Tree = Tree()) -> int:  # noqa: B008 - a frozen value
    """The whole program; its exit code."""
    given = options.parse(words, ("replica", "host", "port", "timeout"))
    for name in ("replica", "port"):
        if name not in given:
            raise UsageError(f"expected --{name}, found none")
    if not given["port"].isdigit() or not 0 < int(given["port"]) < 65536:
        raise UsageError(f"expected a port, found {given['port']!r}")
    host, port = given.get("host", "127.0.0.1"), int(given["port"])
    limit_s = options.seconds(given.get("timeout", "120"), 1, 86400)
    return wait(lambda path: ask(host, port, path), lambda: established(tree, port), limit_s)


def wait(
    ask: Ask,
    connections: Callable[[], int],
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The exit code. `connections`: how many TCP connections to the engine's port are open, the engine's side counted."""
    began, seen, gone, busy = clock(), 0, 0, "it was not asked in time"
    while clock() - began < limit_s:
        found = requests(ask)
        gone = gone + 1 if found is None else 0
        if gone >= _TIMES:
            tell("nobody listens on the engine's port any more: nothing to wait for")
            return 0
        if found is None:
            seen, busy = 0, "nobody listening on its port"
            sleep(_PAUSE_S)
            continue
        count, said = found if found[0] is not None else (connections(), "connections to its port (it tells no count)")
        if count == 0:
            seen += 1
            if seen >= _TIMES:
                tell(f"idle after {clock() - began:.1f} s")
                return 0
        else:
            seen, busy = 0, f"{count:g} {said}"
        sleep(_PAUSE_S)
    tell(f"expected the engine to be idle within {limit_s:g} s, found {busy}; it is stopped all the same", WARNING)
    return EXIT_WARNINGS


def requests(ask: Ask) -> Optional[tuple[Optional[float], str]]:
    """How many requests run and wait, and who says so; no number where the engine tells none, None where nobody listens."""
    for path, read in (("/v1/loads", _loads), ("/get_load", _loads), ("/metrics", _metrics)):
        answer = ask(path)
        if answer is None:
            return None
        count = read(answer[1]) if answer[0] == 200 else None
        if count is not None:
            return count, f"requests by {path}"
    return None, ""


def _loads(text: str) -> Optional[float]:
    """SGLang's loads: a list with one entry a data-parallel rank, alone or under `loads`. `num_reqs` counts both kinds."""
    try:
        value: Any = json.loads(text)
        ranks = value["loads"] if isinstance(value, dict) else value
        counts = [_of_rank(rank) for rank in ranks]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return float(sum(counts)) if counts else None


def _of_rank(rank: Any) -> float:
    if "num_running_reqs" in rank:
        return float(rank["num_running_reqs"]) + float(rank["num_waiting_reqs"])
    # Releases differ in whether the first counts the waiting ones too; none is none either way.
    return float(rank["num_reqs"]) + float(rank["num_waiting_reqs"])


def _metrics(text: str) -> Optional[float]:
    """The gauges of Prometheus's text form added up; None where there is none of them."""
    found = []
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _GAUGES:
            try:
                found.append(float(line.rpartition("}")[2].split()[0] if "{" in line else line.split()[1]))
            except (ValueError, IndexError):
                continue
    return sum(found) if found else None


def ask(host: str, port: int, path: str) -> Optional[tuple[int, str]]:
    """The answer there. Nobody listening is None; one that takes the connection and does not answer, for want of time or because
    it closes it (a limit of connections, a worker's restart), is no answer of 200."""
    connection = http.client.HTTPConnection(host, port, timeout=_ASK_S)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read(_LARGEST_BYTES).decode("utf-8", "replace")
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()
