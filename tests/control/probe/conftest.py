"""What a probe keeps on a host, for tests on this machine."""

from __future__ import annotations

import pytest

from nearsocket.control.probe import ask
from nearsocket.model.probe.baseline import Baseline


@pytest.fixture
def no_baselines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Baseline]:
    """The host keeps none, and this machine is not written to: what is kept is in the fixture."""
    kept: dict[str, Baseline] = {}
    monkeypatch.setattr(ask, "load_baseline", lambda target, key, children: kept.get(key.digest))
    monkeypatch.setattr(ask, "keep_baseline", lambda target, made, children: kept.update({made.key.digest: made}))
    return kept
