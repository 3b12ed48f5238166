"""An upgrade of the driver's packages as it goes on a server: held, let go, the window in which versions differ, the reboot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import lifecycle, ssh
from lab.standins.gpu.packages import NEWER, VERSION
from tests.lab.host import LabHost
from tests.lab.judged import judged
from tests.lab.rows import AT_REST, PACKAGES

#: apt on the machine's own repository alone: the distribution's mirror is out of the lab's reach.
APT = (
    "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dir::Etc::SourceList=/etc/apt/sources.list.d/nearsocket-standin.list"
    " -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none"
)
UPGRADE = f"{APT} -y -o APT::Cmd::Show-Update-Stats=0 upgrade"
INSTALLED = f"dpkg-query -W -f '${{Version}}\\n' {PACKAGES} | sort -u"
MATCH, HOLDS = "driver.versions-match", "driver.package-holds"


pytestmark = pytest.mark.timeout(1800)  # apt under emulation, beside other machines: ten minutes measured


@pytest.fixture
def held(equipped: LabHost) -> Iterator[LabHost]:
    """The equipped machine, its packages held, its repository's index read; put back afterwards."""
    equipped.reset("equipped")
    equipped.sh(f"{AT_REST}; {APT} update", timeout_s=500)
    yield equipped
    equipped.reset("equipped")


def test_a_held_driver_stays_and_an_upgrade_opens_a_window_that_a_reboot_closes(held: LabHost) -> None:
    assert held.sh(INSTALLED) == f"{VERSION}-0standin1"
    held.sh("standin-engine start NCCL_CUMEM_ENABLE=0")
    assert judged(held.name).of(MATCH, HOLDS) == ("pass", "pass")

    # Held: an upgrade leaves it where it is and says so, a named installation is refused.
    assert "kept back" in held.sh(UPGRADE.replace("-qq", "-q"), timeout_s=500)
    assert "Held packages were changed" in held.fails(f"{APT} -y install {PACKAGES}")
    assert held.sh(INSTALLED) == f"{VERSION}-0standin1"

    # Let go and upgraded: the module in memory is the old one, what runs goes on, what starts now fails.
    held.sh(f"apt-mark unhold {PACKAGES}; {UPGRADE}; ldconfig", timeout_s=500)
    assert held.sh(INSTALLED) == f"{NEWER}-0standin1"
    assert held.sh("grep -o '  [0-9.]*  ' /proc/driver/nvidia/version").strip() == VERSION
    assert "Driver/library version mismatch" in held.fails("nvidia-smi; code=$?; [ $code = 18 ] || exit 0; exit 18")
    window = judged(held.name)
    assert window.of(MATCH, HOLDS) == ("fail", "warn"), window.said(MATCH, HOLDS)
    assert NEWER in window.summaries[MATCH]
    assert window.of("nccl.buffer-placement") == ("pass",), "the engine that runs is still judged"

    # The reboot loads the new module.
    before = lifecycle.boot_id(held.record, held.machine)
    ssh.run(held.record.name, held.name, "systemctl reboot")
    lifecycle.wait_reboot(held.record, held.machine, before, 600)
    held.sh(f"{AT_REST}; nvidia-smi -L")
    after = judged(held.name)
    assert after.of(MATCH, HOLDS) == ("pass", "pass"), after.said(MATCH, HOLDS)
    assert held.sh("grep -o '  [0-9.]*  ' /proc/driver/nvidia/version").strip() == NEWER
