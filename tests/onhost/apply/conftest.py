"""What tests that cut an apply at every step share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync is counted and believed, not done: what it guards against is played by `kill.Bomb`."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
