"""What the audit says of two real H200 GPUs: snapshots taken while two ranks of NCCL 2.28.9 ran, scrubbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearsocket.control.checks import load, select
from nearsocket.model import read
from nearsocket.model.exitcode import exit_code
from nearsocket.model.host import BufferRole
from nearsocket.model.judge import judge
from nearsocket.model.snapshot import from_json
from nearsocket.paths import checks_folder

REAL = Path(__file__).parent.parent / "data" / "real"
RUNS = {
    "idle": {"nccl.buffer-placement": "not-applicable", "nccl.cumem-in-force": "not-applicable"},
    "p2p-cumem-off": {"nccl.buffer-placement": "not-applicable", "nccl.cumem-in-force": "not-applicable"},
    "shm-cumem-off": {"nccl.buffer-placement": "pass", "nccl.cumem-in-force": "not-applicable", "nccl.placement-enforced": "pass"},
    "shm-cumem-on": {"nccl.buffer-placement": "pass", "nccl.cumem-in-force": "pass", "nccl.placement-enforced": "pass"},
}


#: The cards were sound, idle or at work.
SOUND = {"gpu.present": "pass", "gpu.ecc": "pass", "gpu.throttling": "pass"}


@pytest.mark.parametrize("name", RUNS)
def test_the_findings_of_a_real_machine_are_right(name: str) -> None:
    host = read.host(from_json((REAL / f"{name}.snapshot.json").read_text(encoding="utf-8")))
    findings = judge(host, select(load([checks_folder()]), ()))
    told = {finding.id: finding.status.value for finding in findings}
    assert {id: told[id] for id in RUNS[name]} == RUNS[name]
    assert {id: told[id] for id in SOUND} == SOUND
    assert exit_code(findings) == 0, [f for f in findings if f.status.value in ("warn", "fail", "unknown")]


def test_real_ring_buffers_are_told_from_the_proxy_pool_and_the_control_files() -> None:
    host = read.host(from_json((REAL / "shm-cumem-off.snapshot.json").read_text(encoding="utf-8")))
    roles = [buffer.role for buffer in host.buffers]
    assert {role: roles.count(role) for role in BufferRole if role in roles} == {
        BufferRole.RING: 8,
        BufferRole.CONTROL: 8,
        BufferRole.PROXY_POOL: 2,
    }
    assert len(host.replicas) == 1 and len(host.replicas[0].gpus) == 2


def test_real_p2p_ranks_map_the_proxy_pool_and_no_ring() -> None:
    host = read.host(from_json((REAL / "p2p-cumem-off.snapshot.json").read_text(encoding="utf-8")))
    assert {buffer.role for buffer in host.buffers} == {BufferRole.PROXY_POOL}
