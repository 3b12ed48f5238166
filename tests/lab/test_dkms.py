"""A driver that DKMS builds on the machine itself, as a server does at every kernel upgrade. Slow: a compiler under emulation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import lifecycle
from lab.standins.equip import lay
from lab.standins.gpu import packages
from tests.lab.host import LabHost
from tests.lab.judged import judged

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
VERSION = packages.VERSION


@pytest.fixture
def builder(lab_state: Path) -> Iterator[LabHost]:
    """A machine with GPUs for show, a compiler, the kernel's headers and DKMS, and the module's sources."""
    record = lifecycle.up(lifecycle.Wish(name="dkms", shape="gpus", profile="dkms", timeout_s=600))
    lay(record, record.machines[0], packages.dkms_sources(VERSION))
    yield LabHost(record, record.machines[0])
    lifecycle.down("dkms")


def test_dkms_builds_the_driver_and_the_audit_knows_that_the_next_boot_has_it(builder: LabHost) -> None:
    release = builder.sh("uname -r")
    builder.sh(
        f"dkms install nvidia/{VERSION} || {{ cat /var/lib/dkms/nvidia/{VERSION}/build/make.log >&2; exit 1; }}", timeout_s=1200
    )
    assert builder.sh("dkms status").startswith(f"nvidia/{VERSION}, {release}, x86_64: installed")
    assert builder.sh("modinfo -F version nvidia") == VERSION
    builder.sh("modprobe nvidia")
    assert VERSION in builder.sh("cat /proc/driver/nvidia/version")
    found = judged(builder.name)
    assert found.of("driver.dkms-next-kernel") == ("pass",), found.said("driver.dkms-next-kernel")
    # A kernel that is installed later and for which nobody built the module comes back without GPUs.
    # Debian's kernel package points /vmlinuz, which the boot loader takes, to the new one.
    builder.sh(f"cp -a /boot/vmlinuz-{release} /boot/vmlinuz-99.0-lab; ln -sf boot/vmlinuz-99.0-lab /vmlinuz")
    builder.sh("mkdir -p /usr/lib/modules/99.0-lab; depmod 99.0-lab")
    later = judged(builder.name)
    assert later.of("driver.dkms-next-kernel") == ("fail",), later.said("driver.dkms-next-kernel")
