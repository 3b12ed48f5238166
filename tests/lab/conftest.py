"""The lab for tests: booted once a session in a state folder of its own, put back to its first state before each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import lifecycle, state
from lab.standins.equip import equip
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


@pytest.fixture(scope="session")
def equipped(request: pytest.FixtureRequest, profile: str) -> LabHost:
    """A machine with stand-ins, saved as `equipped`; NEARSOCKET_LAB_EQUIPPED names one that is up and saved already."""
    if profile == "small":
        pytest.skip("the small image has no container engines")
    named = os.environ.get("NEARSOCKET_LAB_EQUIPPED")
    if named:
        return LabHost(*state.find_machine(named))
    request.getfixturevalue("lab_state")
    record = lifecycle.up(lifecycle.Wish(name="standins", shape="gpus", profile=profile, timeout_s=600))
    equip(record, record.machines[0])
    lifecycle.save(record, record.machines[0], "equipped")
    return LabHost(record, record.machines[0])


@pytest.fixture
def host(booted: LabRecord) -> LabHost:
    """The session's machine as after its first boot."""
    machine = LabHost(booted, booted.machines[0])
    machine.reset()
    return machine
