"""A prefill against the engine that runs on a host, or two of them in turn."""

from __future__ import annotations

import dataclasses

from nearsocket.control import start_record
from nearsocket.control.probe import ask
from nearsocket.control.target import Target
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import UsageError
from nearsocket.model.host import Engine
from nearsocket.model.plan.values import ReplicaPlan
from nearsocket.model.probe import prefill
from nearsocket.model.probe.prefill import PrefillOrder
from nearsocket.model.probe.report import ProbeReport
from nearsocket.model.text import one_line


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


def lengths(text: str) -> tuple[int, ...]:
    """`9000,37000` as tokens. Raises UsageError."""
    found = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 1 <= int(part) <= 10_000_000 for part in found):
        raise UsageError(f"--lengths: expected numbers of tokens such as 9000,37000, found {one_line(text, 60)!r}")
    return tuple(dict.fromkeys(int(part) for part in found))
