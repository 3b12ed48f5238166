"""Every shape as the guest sees it and as the audit tells it, and no alarm about placement on a healthy one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import lifecycle
from lab.audit import audit, topology
from lab.shapes import SHAPES, Shape
from tests.lab.host import LabHost


@pytest.fixture(params=list(SHAPES))
def shaped(request: pytest.FixtureRequest, lab_state: object) -> Iterator[tuple[Shape, LabHost]]:
    """A machine of each shape in turn, beside the session's own."""
    name = f"shape-{request.param}"
    record = lifecycle.up(lifecycle.Wish(name=name, shape=request.param, profile="small"))
    yield SHAPES[request.param], LabHost(record, record.machines[0])
    lifecycle.down(name)


def test_the_guest_and_the_audit_see_the_shape_and_a_healthy_machine_raises_no_placement_alarm(
    shaped: tuple[Shape, LabHost],
) -> None:
    shape, host = shaped
    nodes = range(len(shape.nodes))
    seen = host.sh("lscpu --parse=CPU,SOCKET,NODE | grep -v '#' | cut -d, -f1-3").splitlines()
    assert seen == [f"{cpu},{shape.nodes[node].socket},{node}" for node in nodes for cpu in shape.cpus_of(node)]
    for node in nodes:
        distances = host.sh(f"cat /sys/devices/system/node/node{node}/distance").split()
        assert distances == [str(shape.distance(node, other)) for other in nodes]
        total_mib = int(host.sh(f"awk '/MemTotal/ {{ print int($4 / 1024) }}' /sys/devices/system/node/node{node}/meminfo"))
        assert shape.nodes[node].memory_mib * 0.85 <= total_mib <= shape.nodes[node].memory_mib

    told = topology(host.name)
    assert len(told["sockets"]) == shape.sockets
    assert [node["id"] for node in told["nodes"]] == list(nodes)

    host.sh("lab-ranks start -p CPUAffinity=0 -- numactl --membind=0")
    report = audit(host.name)
    alarms = {one.id for one in report.verdicts if one.status == "fail"}
    assert not alarms
    assert report.of("nccl.buffer-placement").status == "pass"
    assert report.of("nccl.placement-enforced").status in ("pass", "not-applicable")


def test_a_machine_without_ranks_raises_no_placement_alarm(host: LabHost) -> None:
    report = audit(host.name, near=None)
    assert report.of("nccl.buffer-placement").status == "not-applicable"
    assert not [one.id for one in report.verdicts if one.status == "fail"]


def test_the_audit_works_for_a_user_with_sudo_and_says_what_one_without_cannot_see(host: LabHost) -> None:
    host.sh("lab-ranks start -- numactl --membind=0")
    assert audit(host.name, "0", "--sudo", user="ops").of("nccl.buffer-placement").status == "pass"
    assert audit(host.name, user="visitor").of("nccl.buffer-placement").status == "unknown"
