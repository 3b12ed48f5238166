"""A new host is audited before anything is written there, and only what a deploy cures may be wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import date

import pytest

from nearsocket import paths
from nearsocket.control import checks, converge, firstlook
from nearsocket.control.converge import Leave
from nearsocket.control.firstlook import FirstLook
from nearsocket.control.waivers import Waiver
from nearsocket.model.check import Check
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Evidence, Finding, failed, warned
from nearsocket.model.host import Host
from nearsocket.model.order import Part
from nearsocket.model.outcome import Installed
from tests.control.test_converge import NOTHING, RECORD, TARGET, TEMPLATES, in_force, surveyed

EVERY = checks.load([paths.checks_folder()])


def failing(id: str, warn: bool = False) -> Check:
    """A check that fails on every host."""

    def judge(host: Host) -> Iterable[Finding]:
        yield (warned if warn else failed)(host.name, "it is wrong", [Evidence("x", "y")], "mend it")

    known = next(check for check in EVERY if check.id == id)
    return dataclasses.replace(known, function=judge)


def prepared(look: FirstLook, installed: Installed = NOTHING, part: Part | None = None) -> None:
    converge.prepare(TARGET, surveyed(installed), RECORD, Leave(), TEMPLATES, part, look)


def test_a_failure_that_a_deploy_does_not_cure_stops_a_new_host_with_its_id() -> None:
    with pytest.raises(NearsocketError, match=r"driver\.versions-match fail: it is wrong"):
        prepared(FirstLook((failing("driver.versions-match"),)))


@pytest.mark.parametrize("id", sorted(firstlook.CURED))
def test_what_a_deploy_cures_does_not(id: str) -> None:
    prepared(FirstLook((failing(id),)))


def test_a_warning_a_waived_failure_and_a_host_that_is_ours_do_not_stop() -> None:
    prepared(FirstLook((failing("gpu.ecc", warn=True),)))
    waiver = Waiver("gpu.ecc", "*", "known", "ops", date(2099, 1, 1))
    prepared(FirstLook((failing("gpu.ecc"),), (waiver,)))
    prepared(FirstLook((failing("gpu.ecc"),)), in_force())
    prepared(FirstLook((failing("gpu.ecc"),)), part=Part.TUNE)


def test_every_id_that_is_cured_is_a_checks() -> None:
    assert {check.id for check in EVERY} >= firstlook.CURED


def test_a_plain_host_passes_with_every_check_of_the_project() -> None:
    prepared(FirstLook(EVERY))
