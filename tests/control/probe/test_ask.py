"""What a probe sends to a host, and what it makes of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.control.probe import ask
from nearsocket.control.target import Target, Way
from nearsocket.control.transport.process import Children
from nearsocket.model.errors import UsageError
from nearsocket.model.probe import baseline as baselines
from nearsocket.model.probe.baseline import Baseline, Key
from nearsocket.model.probe.series import Series


def test_a_baseline_goes_to_the_host_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that are sent, and what is made of the answer; the file itself is tested on the host's side."""
    key = Key("sha256:ab", "595.45", "2.30.7", "engine", "nccl", ())
    made = Baseline(key, "2026-01-01T00:00:00Z", (Series(4096, 2, (1.0,), 2.0),))
    sent: list[tuple[list[str], bytes]] = []

    def answer(target: Target, words: list[str], given: bytes, limit_s: float, children: Children) -> str:
        sent.append((words, given))
        return made.to_json()

    monkeypatch.setattr(ask, "ask", answer)
    target = Target("h", Way.LOCAL)
    ask.keep_baseline(target, made, Children())
    assert ask.load_baseline(target, key, Children()) == made
    assert sent[0] == (["baseline", "--digest", key.digest, "--keep", "yes"], made.to_json().encode())
    assert baselines.from_json(sent[0][1].decode()) == made


def test_a_saved_snapshot_cannot_be_measured() -> None:
    with pytest.raises(UsageError, match="expected a host to measure on"):
        ask.ask(Target("x", Way.FILE, file=Path("x")), ["probe"], b"", 1, Children())
