"""Planted faults against findings, on a machine with GPUs for show and a stand-in engine: each found by its findings, no others.

The machine may be slow: an audit in which a source had no time counts for nothing and is repeated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from lab import lifecycle, state
from lab.standins.engine import image
from lab.standins.equip import equip
from lab.standins.gpu import cdi
from tests.lab.audits import IN_TIME, worst
from tests.lab.host import LabHost

#: What a finding says where a source had no time: the machine's speed, not the fault, made it.
LATE = ("in time", "no answer")
AT_REST = "apt-mark hold libnvidia-compute-standin nvidia-kernel-standin nvidia-utils-standin; sysctl -w kernel.numa_balancing=0"
GPU1 = "/sys/bus/pci/devices/0000:41:00.0/numa_node"


@dataclass(frozen=True)
class Row:
    """A fault of the host: how it is planted and taken away, and every finding that it changes, by status."""

    name: str
    plant: str
    found: Mapping[str, str]
    undo: str = f"rm -f {cdi.FAULTS}/*"
    needs: tuple[str, ...] = IN_TIME


def fault(name: str, content: str = "") -> str:
    return f"mkdir -p {cdi.FAULTS}; printf '%s' '{content}' >{cdi.FAULTS}/{name}"


#: Faults of the host beside an engine whose buffers cuMem holds.
HOST_ROWS = (
    Row("numa-node-unknown", f"echo -1 >{GPU1}", {"topology.gpu-node": "warn"}, f"echo 0 >{GPU1}"),
    Row(
        "numa-node-wrong",
        f"echo 1 >{GPU1}",
        {
            "topology.gpu-node": "fail",
            "engine.binding": "unknown",
            "nccl.buffer-placement": "unknown",
            "nccl.placement-enforced": "unknown",
        },
        f"echo 0 >{GPU1}",
    ),
    Row("nvml-does-not-know-the-node", fault("nvml-node-1"), {}),
    Row("persistence-off", fault("persistence-off-1"), {"driver.persistence": "warn"}),
    Row("narrow-link", fault("link-width-1", "8"), {"topology.pcie-link": "warn"}),
    # No check judges these two yet: the values are in the snapshot (nvml: ecc, throttle).
    Row("ecc-errors", fault("ecc-1", "7"), {}),
    Row("throttled", fault("throttle-1"), {}),
    Row("packages-not-held", "apt-mark unhold nvidia-kernel-standin", {"driver.package-holds": "warn"}, AT_REST),
    Row("numa-balancing", "sysctl -w kernel.numa_balancing=1", {"kernel.numa-balancing": "warn"}, AT_REST),
)


def changed(base: Mapping[str, tuple[str, str]], found: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """The findings whose status is not the base's, but for those that the machine's speed made in either audit."""
    late = {name for side in (base, found) for name, (_, text) in side.items() if any(word in text for word in LATE)}
    return {
        name: status
        for name, (status, _) in found.items()
        if name not in late and name != "host.reachable" and base.get(name, ("", ""))[0] != status
    }


@pytest.fixture(scope="module")
def equipped(request: pytest.FixtureRequest, profile: str) -> LabHost:
    """A machine with stand-ins; NEARSOCKET_LAB_EQUIPPED names one that is up already, for work at these tests."""
    named = os.environ.get("NEARSOCKET_LAB_EQUIPPED")
    if named:
        record, machine = state.find_machine(named)
        return LabHost(record, machine)
    request.getfixturevalue("lab_state")
    record = lifecycle.up(lifecycle.Wish(name="standins", shape="gpus", profile=profile, timeout_s=600))
    equip(record, record.machines[0])
    return LabHost(record, record.machines[0])


@pytest.fixture
def rested(equipped: LabHost) -> Iterator[LabHost]:
    """That machine without faults and engines."""
    equipped.sh(f"rm -f {cdi.FAULTS}/*; standin-engine stop; {AT_REST}")
    yield equipped
    equipped.sh(f"rm -f {cdi.FAULTS}/*; standin-engine stop; docker rm -f engine; podman rm -f -i -t 0 engine", timeout_s=300)


@pytest.fixture(scope="module")
def healthy(equipped: LabHost) -> dict[str, tuple[str, str]]:
    """The findings with an engine whose buffers cuMem holds near, and nothing planted."""
    equipped.sh(f"rm -f {cdi.FAULTS}/*; {AT_REST}; standin-engine start NCCL_CUMEM_ENABLE=1")
    found = worst(equipped.name, IN_TIME)
    for name in (
        "nccl.buffer-placement",
        "nccl.cumem-in-force",
        "nccl.placement-enforced",
        "topology.gpu-node",
        "driver.versions-match",
    ):
        assert found[name][0] == "pass", found[name]
    return found


@pytest.mark.parametrize("row", HOST_ROWS, ids=lambda row: row.name)
def test_a_planted_fault_of_the_host_is_found_by_its_findings_and_no_others(
    equipped: LabHost, healthy: dict[str, tuple[str, str]], row: Row
) -> None:
    equipped.sh(row.plant)
    try:
        found = worst(equipped.name, row.needs)
    finally:
        equipped.sh(row.undo)
    assert changed(healthy, found) == row.found


#: Starts of the engine on the host itself: variables, faults, and what the three placement findings say.
ENGINE_ROWS = (
    ("variable-off-near", "NCCL_CUMEM_ENABLE=0", (), ("pass", "warn", "fail")),
    ("variable-off-far", "NCCL_CUMEM_ENABLE=0", ("far",), ("fail", "warn", "fail")),
    ("split", "NCCL_CUMEM_ENABLE=0", ("split",), ("fail", "warn", "fail")),
    ("host-path-off", "NCCL_CUMEM_ENABLE=1 NCCL_CUMEM_HOST_ENABLE=0", (), ("pass", "warn", "fail")),
    ("legacy", "NCCL_CUMEM_ENABLE=1", ("legacy",), ("pass", "warn", "fail")),
)
PLACEMENT = ("nccl.buffer-placement", "nccl.placement-enforced", "nccl.cumem-in-force")


@pytest.mark.parametrize(("variables", "faults", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ENGINE_ROWS])
def test_the_audit_tells_how_the_engine_holds_its_buffers(
    rested: LabHost, variables: str, faults: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    for name in faults:
        rested.sh(fault(name))
    rested.sh(f"standin-engine start {variables}")
    found = worst(rested.name)
    assert tuple(found[name][0] for name in PLACEMENT) == expected, {name: found[name] for name in PLACEMENT}


def test_with_one_rank_dead_the_one_that_lives_is_still_judged(rested: LabHost) -> None:
    rested.sh("standin-engine start NCCL_CUMEM_ENABLE=0")
    rested.sh(
        f"{fault('dead-rank', '1')}; "
        "for _ in $(seq 100); do pgrep -f ^sglang::scheduler_TP1 >/dev/null || exit 0; sleep 0.2; done; exit 1"
    )
    found = worst(rested.name)
    assert found["nccl.buffer-placement"][0] == "pass" and found["nccl.cumem-in-force"][0] == "fail"


def test_an_unbound_engine_lands_far_when_the_near_node_is_full(rested: LabHost) -> None:
    for _draw in range(3):
        rested.sh("lab-fill 0; standin-engine start NCCL_CUMEM_ENABLE=0")
        found = worst(rested.name)
        if found["nccl.buffer-placement"][0] == "fail":
            break
    assert found["nccl.buffer-placement"][0] == "fail" and found["nccl.placement-enforced"][0] == "warn"


RUN = (
    "{runtime} run -d --name engine --network host --device nvidia.com/gpu=0 --device nvidia.com/gpu=1 --shm-size 1g {options}"
    " -v /var/log/nccl:/nccl -v /var/lib/weights.bin:/models/weights.bin:ro -e NCCL_CUMEM_ENABLE=1 -e NCCL_DEBUG=INFO"
    " -e NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,SHM,ALLOC,ALLOC_HOST -e NCCL_DEBUG_FILE=/nccl/nccl.%h.%p"
    " {image} --model-path /models/weights.bin --tp 2 --port 30000"
)
ASK = """python3 -c 'import json, urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 2}).encode()
request = urllib.request.Request("http://127.0.0.1:30000/v1/chat/completions", body, {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=60))["usage"]["total_tokens"])'"""


@pytest.mark.parametrize(
    ("runtime", "options", "in_force"),
    [
        pytest.param("docker", "--cap-add SYS_NICE", "pass", id="docker-sys-nice"),
        pytest.param("docker", "", "fail", id="docker-fallback"),
        pytest.param("podman", "", "fail", id="podman-fallback"),
        pytest.param("podman", "--cap-add SYS_NICE", "pass", id="podman-sys-nice"),
    ],
)
def test_a_container_serves_and_the_audit_tells_whether_cumem_is_in_force(
    rested: LabHost, runtime: str, options: str, in_force: str
) -> None:
    image.load(rested.record.name, rested.name, runtime, timeout_s=600)
    rested.sh(
        "rm -rf /var/log/nccl; mkdir -p /var/log/nccl; [ -f /var/lib/weights.bin ] || head -c 30M /dev/zero >/var/lib/weights.bin"
    )
    rested.sh(RUN.format(runtime=runtime, options=options, image=image.NAME))
    rested.sh(
        f"for _ in $(seq 400); do {runtime} logs engine 2>&1 | grep -q 'ready to roll' && exit 0; sleep 0.5; done; "
        f"{runtime} logs engine; exit 1"
    )
    assert rested.sh(ASK) == "6"
    found = worst(rested.name)
    assert found["nccl.cumem-in-force"][0] == in_force, found["nccl.cumem-in-force"]
    if in_force == "fail":
        assert "fell back" in found["nccl.cumem-in-force"][1] or "fell back" in str(found), found["nccl.cumem-in-force"]
    assert found["nccl.buffer-placement"][0] in ("pass", "fail")
