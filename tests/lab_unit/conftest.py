"""The world that lab tests without a virtual machine run in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import accel, lifecycle, machine
from lab.image import Image
from lab.recipe import recipe
from lab.state import LabFolder
from tests.lab_unit.world import FakeMonitor, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("NEARSOCKET_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("NEARSOCKET_LAB_CACHE", str(tmp_path / "cache"))
    fake = World(tmp_path)
    folder = tmp_path / "cache" / f"image-{recipe('small').digest}"
    folder.mkdir(parents=True)
    image = Image(recipe("small").digest, folder)
    monkeypatch.setattr(lifecycle, "ensure", lambda _recipe: image)
    monkeypatch.setattr(lifecycle.tools, "need", lambda _tools: None)
    monkeypatch.setattr(lifecycle, "need_space", lambda *_: None)
    monkeypatch.setattr(accel, "choose", lambda _image: ("tcg", "a test says so"))
    monkeypatch.setattr(machine, "lay", lambda record, one, _image: LabFolder(record.name).machine(one.name).mkdir())
    monkeypatch.setattr(machine, "power_on", fake.power_on)
    monkeypatch.setattr(machine, "wait", lambda *_: None)
    monkeypatch.setattr(machine, "set_clock", lambda *_: fake.calls.append("clock"))
    monkeypatch.setattr(lifecycle, "Monitor", FakeMonitor)
    yield fake
    for child in fake.started:
        child.kill()
        child.communicate()
