"""A prefill against the engine that runs on a host, or two of them in turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from nearsocket.control import audit, start_record
from nearsocket.control.probe import ask
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model import read
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.host import Engine
from nearsocket.model.plan.make import plan
from nearsocket.model.plan.values import ReplicaPlan
from nearsocket.model.probe import prefill
from nearsocket.model.probe.prefill import PrefillOrder
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.text import one_line

#: Where SGLang listens unless it is told otherwise.
DEFAULT_URL = "http://127.0.0.1:30000"


@dataclass(frozen=True)
class Found:
    """An engine: its address as its host reaches it, its API, and the file there that has its key (None: it wants none)."""

    url: str
    api: str
    key_file: str | None = None


def found(target: Target, replica: str | None, timeout_s: float, children: Children) -> Found:
    """The engine of the replica that the inventory has for that host (the named one, else its only one).

    SGLang's default where the inventory says nothing of it. Raises NearsocketError, UsageError.
    """
    if target.settings is None or not target.settings.replicas:
        return Found(DEFAULT_URL, "sglang")
    made = plan(read.host(audit.collect(target, timeout_s, children), target.near), target.settings)
    if made.refused:
        raise NearsocketError(f"{made.refusals[0].subject}: {made.refusals[0].reason}", made.refusals[0].hint)
    chosen = [one for one in made.replicas if replica in (None, one.name)]
    if len(chosen) != 1:
        names = ", ".join(one.name for one in made.replicas)
        raise UsageError(f"{target.name}: expected --replica and one of {names}, found {replica or 'none'!r}")
    settings = chosen[0].settings
    key = settings.verify.api_key
    return Found(address(chosen[0]), api(chosen[0]), settings.secrets[key] if key else None)


def measure(target: Target, order: PrefillOrder, bound: float, children: Children) -> ProbeReport:
    """Ask the engines from the host itself, judge. Raises NearsocketError."""
    for url in order.urls:
        prefill.insist_on_http(url)
    answer = prefill.answer_from_json(ask.ask(target, ["prefill"], order.to_json(), order.whole_s + order.request_s, children))
    subject = " against ".join(one_line(url, 80) for url in order.urls)
    finding = dataclasses.replace(prefill.judge(subject, order, answer, bound), id="probe.prefill")
    return ProbeReport(target.name, subject, "prefill", (finding,), readings=answer.readings)


def address(replica: ReplicaPlan) -> str:
    """Where that replica answers, as its host reaches it."""
    return start_record.health(replica).removesuffix(replica.settings.health)


def api(replica: ReplicaPlan) -> str:
    """Which API tells cached tokens without being asked to: SGLang's own; vLLM has the OpenAI one."""
    return "sglang" if replica.settings.engine is Engine.SGLANG else "openai"


def key_files(given: Sequence[str], count: int, own: str | None = None) -> tuple[str | None, ...]:
    """The key's file of each of `count` engines: those that were given, in their order; for the first `own` where none was.

    Raises UsageError for a file that is not named from the root, and for more files than engines.
    """
    if len(given) > count:
        raise UsageError(
            f"--api-key-file: expected one for each engine ({count}), found {len(given)}", "the second belongs to --against"
        )
    for path in given:
        if not path.startswith("/"):
            raise UsageError(f"--api-key-file: expected an absolute path on the host, found {one_line(path, 80)!r}")
    every = (*(given or (own,)), *[None] * count)
    return every[:count]


def lengths(text: str) -> tuple[int, ...]:
    """`9000,37000` as tokens. Raises UsageError."""
    found = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 1 <= int(part) <= 10_000_000 for part in found):
        raise UsageError(f"--lengths: expected numbers of tokens such as 9000,37000, found {one_line(text, 60)!r}")
    return tuple(dict.fromkeys(int(part) for part in found))
