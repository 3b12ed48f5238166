"""Two machines that serve, for the job reprovision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nearsocket.control import converge, verify
from nearsocket.control.reprovision import ask, measuring
from nearsocket.control.reprovision.measuring import Compared
from nearsocket.control.rollout import beating, record, run
from nearsocket.control.rollout.job import Place
from nearsocket.control.target import Target
from nearsocket.control.transport import Transport, TransportError, Trouble
from nearsocket.control.verify import HostVerdicts
from nearsocket.model.rollout.progress import Progress
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.onhost.reprovision import facts, stopping
from tests.control.reprovision.fleet import Fleet, Line
from tests.onhost.reprovision.conftest import UNITS
from tests.onhost.reprovision.standin import NEW


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Two machines that serve. Stand-ins beside them: surveys, verdicts, signs of life and all-reduces, which have tests of their
    own."""
    monkeypatch.setattr("os.fsync", lambda _fd: None)
    made = Fleet(tmp_path, ("r1", "r2"))

    @contextlib.contextmanager
    def lines(targets: Sequence[Target]) -> Iterator[Mapping[str, Transport]]:
        yield made.lines

    def survey(target: Target, way: Line, *_: Any, **__: Any) -> Snapshot:
        way.tick()
        if way.ends_at is not None and made.clock.now >= way.ends_at + way.down_s:
            raise TransportError(Trouble.REFUSED, "expected an SSH connection, found: connection refused", "look at sshd")
        left = way.rollout.value() if way.rollout else None
        source = Source(SourceStatus.OK, data=left) if left else Source(SourceStatus.ABSENT, reason="none")
        return Snapshot(target.name, "2026-01-01T00:00:00Z", None, {}, {}, {"rollout": source})

    def mark(place: Place, at: Progress, *_: Any) -> None:
        made.lines[place.target.name].rollout = at

    def proven(target: Target, way: Line, *_: Any) -> HostVerdicts:
        down = sorted(set(UNITS) - way.site.up)
        reason = f"{down[0]} does not run" if down else "nothing to prove"
        wrong = way.unproven and way.machine.state["module"] == NEW
        silent = (verify.Silent("a", reason),) if down or wrong else ()
        return HostVerdicts(target.name, silent=silent)

    monkeypatch.setattr(ask.program, "payload", lambda _words, given: given)
    monkeypatch.setattr(run, "lines", lines)
    monkeypatch.setattr(converge, "survey", survey)
    monkeypatch.setattr(record, "mark", mark)
    monkeypatch.setattr(beating, "shown", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(beating, "seen", lambda _place: None)
    monkeypatch.setattr(verify, "one", proven)
    monkeypatch.setattr(stopping, "collect", lambda _s, root: Snapshot("h", "2026-01-01T00:00:00Z", None, {}, {}))
    monkeypatch.setattr(measuring, "compared", lambda *_: Compared(("all-reduces as fast as before",), ("a", "b")))
    monkeypatch.setattr(facts, "SETTLE_S", 0.0)
    monkeypatch.setattr(measuring, "changes", lambda *_: ["better: driver"])
    return made
