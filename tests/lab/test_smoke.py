"""The whole chain once: boot, fault, cure, and what the audit says of each over real SSH."""

from __future__ import annotations

import time

from lab.audit import audit
from tests.lab.host import RING_PAGES, LabHost


def test_the_machine_has_two_nodes_on_two_sockets(host: LabHost) -> None:
    assert host.sh("lscpu --parse=CPU,SOCKET,NODE | grep -v '#' | cut -d, -f1-3").splitlines() == [
        "0,0,0",
        "1,0,0",
        "2,1,1",
        "3,1,1",
    ]
    assert host.sh("cat /sys/devices/system/node/has_memory") == "0-1"
    assert host.sh("cat /sys/devices/system/node/node0/distance") == "10 21"


def test_unbound_ranks_land_far_and_bound_ones_near_and_the_audit_says_both(host: LabHost) -> None:
    host.sh("lab-fill 0")
    host.sh("lab-ranks start -p CPUAffinity=0-1")
    far = host.placement()
    assert (far.policy, far.mems) == ("default", "0-1")
    assert far.files == 16
    assert far.near_share < 0.9
    assert audit(host.name).of("nccl.buffer-placement").status == "fail"

    host.sh("lab-ranks stop; lab-ranks start -p CPUAffinity=0-1 -- numactl --membind=0")
    near = host.placement()
    assert (near.policy, near.pages) == ("bind:0", {0: RING_PAGES, 1: 0})
    report = audit(host.name)
    assert report.of("nccl.buffer-placement").status == "pass"
    assert report.of("nccl.placement-enforced").status == "pass"


def test_a_reset_takes_seconds_and_sets_the_clock(host: LabHost) -> None:
    host.sh("touch /var/tmp/trace; lab-ranks start")
    assert host.reset() < 30  # about two seconds alone; a shared builder is slower
    host.sh("test ! -e /var/tmp/trace")
    host.fails("pgrep -x sglang::schedul")
    away = host.sh("date +%s")

    assert abs(int(away) - time.time()) < 20
