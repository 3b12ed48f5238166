"""Servers and keys that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.server import Keys, Server, serving


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The keys of this run."""
    return Keys(tmp_path_factory.mktemp("ssh") / "keys")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[Server]:
    """A plain server for all tests that only log in; its log grows."""
    with serving(tmp_path_factory.mktemp("server") / "plain", keys) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for one test's own server."""
    return tmp_path / "server"
