"""One action of the program on one host, with its input and its answer. Raises TransportError where there is no answer."""

from __future__ import annotations

from collections.abc import Sequence

from nearsocket.control import audit, program
from nearsocket.control.target import Target, Way
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import UsageError
from nearsocket.model.probe import baseline, starts
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.starts import ProbeOrder, Started

#: For the connection and the program's start.
_AROUND_S = 60.0
_SHORT_S = 30.0


def ask(target: Target, words: Sequence[str], given: bytes, limit_s: float, children: Children) -> str:
    """What the action wrote, from its first schema on: a login shell may have spoken before it; empty where it wrote none."""
    if target.way is Way.FILE:
        raise UsageError(f"{target.name}: expected a host to measure on, found a saved snapshot")
    sent = audit.password_line(target.sudo) + program.payload(list(words), given)
    answer = audit.transport(target).run(audit.command(target), sent, limit_s + _AROUND_S, children)
    start = answer.stdout.find(b'{"schema"')
    if start < 0:
        start = answer.stdout.find(b"{\n")
    return answer.stdout[start:].decode("utf-8", "replace") if start >= 0 else ""


def run_starts(target: Target, order: ProbeOrder, children: Children) -> tuple[Started, ...]:
    """Carry the order out on the host."""
    return starts.answer_from_json(ask(target, ["probe"], order.to_json(), order.limit_s, children))


def load_baseline(target: Target, key: Key, children: Children) -> Baseline | None:
    """The baseline that the host keeps under that key; None where there is none."""
    text = ask(target, ["baseline", "--digest", key.digest], b"", _SHORT_S, children)
    return baseline.from_json(text) if text.strip() else None


def keep_baseline(target: Target, made: Baseline, children: Children) -> None:
    """Write it on the host. Raises NearsocketError where it was not."""
    words = ["baseline", "--digest", made.key.digest, "--keep", "yes"]
    baseline.from_json(ask(target, words, made.to_json().encode("ascii"), _SHORT_S, children))
