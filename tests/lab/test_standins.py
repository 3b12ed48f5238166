"""Faults of the host against findings, on a machine with GPUs for show: each is found by its findings and by no others."""

from __future__ import annotations

import pytest

from tests.lab.host import LabHost
from tests.lab.judged import Judged, judged
from tests.lab.rows import AT_REST, HOST_ROWS, PLACEMENT, HostRow


@pytest.fixture(scope="module")
def healthy(equipped: LabHost) -> Judged:
    """The findings with an engine whose buffers cuMem holds near, and nothing planted."""
    equipped.reset("equipped")
    equipped.sh(f"{AT_REST}; standin-engine start NCCL_CUMEM_ENABLE=1")
    found = judged(equipped.name)
    sound = (*PLACEMENT, "host.reachable", "topology.gpu-node", "driver.versions-match", "gpu.present", "gpu.ecc", "gpu.throttling")
    assert set(found.of(*sound)) == {"pass"}, found.said(*sound)
    return found


@pytest.mark.parametrize("row", HOST_ROWS, ids=lambda row: row.name)
def test_a_planted_fault_of_the_host_is_found_by_its_findings_and_no_others(
    equipped: LabHost, healthy: Judged, row: HostRow
) -> None:
    equipped.sh(row.plant)
    try:
        found = judged(equipped.name)
    finally:
        equipped.sh(row.undo)
    changes = healthy.changes(found)
    assert changes == row.found, found.said(*changes, *row.found)
