"""kernel.*: numa_balancing, zone_reclaim_mode."""

from __future__ import annotations

import pytest

from nearsocket.model.host import Host
from nearsocket.model.snapshot import Source
from tests import build
from tests.checks.judging import host_with, one, status

BALANCING, RECLAIM = "kernel.numa-balancing", "kernel.zone-reclaim-mode"


@pytest.mark.parametrize(("value", "wanted"), [("0", "pass"), ("1", "warn"), ("2", "warn")])
def test_numa_balancing(value: str, wanted: str) -> None:
    assert status(BALANCING, build.host(sysctl={"kernel.numa_balancing": value})) == wanted


def reclaim(value: str, lru: Source | None) -> Host:
    sources = {} if lru is None else {"kernel.mm": lru}
    return host_with(sources, sysctl={"vm.zone_reclaim_mode": value})


ON, OFF, OLD = (build.source(data=data) for data in ({"lru_gen/enabled": "0x0007"}, {"lru_gen/enabled": "0x0000"}, {}))


@pytest.mark.parametrize(
    ("value", "lru", "wanted"),
    [
        ("0", None, "pass"),
        ("1", ON, "warn"),
        ("7", ON, "pass"),
        ("1", OFF, "pass"),
        ("1", OLD, "pass"),
        ("1", None, "unknown"),
        ("1", build.source(status="denied"), "unknown"),
        ("odd", ON, "warn"),
    ],
)
def test_zone_reclaim_mode_depends_on_the_kernels_lru(value: str, lru: Source | None, wanted: str) -> None:
    assert status(RECLAIM, reclaim(value, lru)) == wanted


def test_it_is_never_called_a_cure() -> None:
    assert "no cure to rely on" in one(RECLAIM, reclaim("1", OFF)).summary


@pytest.mark.parametrize("id", [BALANCING, RECLAIM])
def test_a_kernel_without_the_parameter_and_one_that_was_not_read(id: str) -> None:
    assert status(id, host_with({"kernel.sysctl": build.source(data={})}, sysctl={})) == "not-applicable"
    assert status(id, host_with({"kernel.sysctl": build.source(status="denied")}, sysctl={})) == "unknown"
    assert status(id, build.host(sysctl={})) == "unknown"
