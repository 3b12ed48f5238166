"""Runs one check, loaded as the audit loads it, on a host made for a test."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from nearsocket.control.checks import load
from nearsocket.model.check import Check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host
from nearsocket.model.snapshot import Source
from tests import build

ROOT = Path(__file__).resolve().parent.parent.parent


@cache
def checks() -> dict[str, Check]:
    """The project's checks by id."""
    return {check.id: check for check in load([ROOT / "checks"])}


def findings(id: str, host: Host) -> tuple[Finding, ...]:
    """What the check says; a fault inside it is a fault of the test."""
    found = checks()[id].run(host)
    for finding in found:
        assert "the check itself failed" not in finding.summary, finding.summary
        assert "\n" not in finding.summary
        assert finding.evidence, f"{finding.summary}: no evidence"
        assert (finding.remedy is None) == (finding.status.value in ("pass", "not-applicable")), finding
    return found


def one(id: str, host: Host) -> Finding:
    """The check's only finding."""
    found = findings(id, host)
    assert len(found) == 1, [finding.summary for finding in found]
    return found[0]


def status(id: str, host: Host) -> str:
    """The worst status of the check's findings, as its word."""
    return build.worst(findings(id, host)).value


def host_with(sources: dict[str, Source], **changes: Any) -> Host:
    """The healthy host with these sources added to its own."""
    return build.host(sources={**build.host().sources, **sources}, **changes)


def without_gpu(**changes: Any) -> Host:
    """A host whose PCI bus was read and has no GPU, and that lacks NVML's library."""
    read = {
        "pci": build.source(data={}),
        "nvml": build.source(status="absent", reason="no libnvidia-ml.so.1"),
        "nodes": build.source(data={"online": "0-1"}),
        "processes": build.source(data=[]),
        "containers": build.source(data=[]),
    }
    return build.host(**{"gpus": (), "processes": (), "containers": (), "sources": read, **changes})
