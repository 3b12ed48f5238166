"""The lab for tests: booted once a session in a state folder of its own, put back to its first state before each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import lifecycle
from lab.state import LabRecord
from tests.lab.host import LabHost

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is a lab test, with time for a boot and an image's build."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def lab_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder for this session: a person's own labs are neither seen nor touched."""
    folder = tmp_path_factory.mktemp("lab") / "state"
    before = os.environ.get("NEARSOCKET_LAB_STATE")
    os.environ["NEARSOCKET_LAB_STATE"] = str(folder)
    yield folder
    lifecycle.down(None)
    os.environ.pop("NEARSOCKET_LAB_STATE")
    if before is not None:
        os.environ["NEARSOCKET_LAB_STATE"] = before


@pytest.fixture(scope="session")
def profile() -> str:
    """The image's profile: NEARSOCKET_LAB_PROFILE, else the full one."""
    return os.environ.get("NEARSOCKET_LAB_PROFILE", "full")


@pytest.fixture(scope="session")
def booted(lab_state: Path, profile: str) -> LabRecord:
    """The session's two-socket machine."""
    return lifecycle.up(lifecycle.Wish(name="test", profile=profile))


@pytest.fixture
def host(booted: LabRecord) -> LabHost:
    """The session's machine as after its first boot."""
    machine = LabHost(booted, booted.machines[0])
    machine.reset()
    return machine
