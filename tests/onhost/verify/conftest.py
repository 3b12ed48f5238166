from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsocket.onhost.verify import act
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine, Ranks


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """The process that started two ranks, and the ranks."""
    with machines.ranks() as found:
        yield found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a replica that started and of which nothing runs yet."""
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setattr(act, "_END_S", 0.0)  # no systemd ends this process
    made = machines.made(root, monkeypatch)
    made.managed(machines.start())
    made.started()
    return made
