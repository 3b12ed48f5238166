"""What a daemon-reload does to a container's devices, by hand: on a systemd that writes device rules anew at each (252, Debian 12).

The device is /dev/fuse under a GPU's name: the rules know numbers alone. The hook is a stand-in of NVIDIA's legacy one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import lifecycle
from lab.standins.equip import lay
from tests.lab.host import LabHost

HOOK = Path(__file__).resolve().parents[2] / "lab/standins/gpu/hook.py"
NODES = ("/dev/nvidiactl", "/dev/nvidia0")
SPECIFICATION = {
    "containerEdits": {"deviceNodes": [{"path": NODES[0]}], "mounts": []},
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": NODES[1]}]}}],
}
#: An image of busybox alone, from nowhere.
IMAGE = (
    "mkdir -p /tmp/tiny/bin; cp /bin/busybox /tmp/tiny/bin/busybox; ln -sf busybox /tmp/tiny/bin/sh; "
    "ln -sf busybox /tmp/tiny/bin/sleep; tar -C /tmp/tiny -c . | docker import - tiny >/dev/null"
)
READS = "docker exec one /bin/sh -c 'exec 3</dev/nvidiactl' 2>&1 && echo reads || echo lost"


@pytest.fixture(scope="module")
def older(lab_state: Path) -> Iterator[LabHost]:
    """A machine of the Debian before, whose Docker knows the hook."""
    record = lifecycle.up(lifecycle.Wish(name="older", profile="older", timeout_s=900))
    host = LabHost(record, record.machines[0])
    specification = json.dumps(SPECIFICATION).encode()
    lay(
        record,
        record.machines[0],
        [
            ("/usr/bin/nvidia-container-runtime-hook", HOOK.read_bytes(), 0o755),
            ("/etc/cdi/nearsocket-standin.json", specification, 0o644),
        ],
    )
    host.sh(f"modprobe fuse; for node in {NODES[0]} {NODES[1]}; do mknod -m 666 $node c 10 229; done")
    host.sh(f"systemctl restart docker; docker info >/dev/null; {IMAGE}", timeout_s=300)
    yield host
    lifecycle.down("older")


def run(host: LabHost, gpus: str) -> None:
    """A container that does nothing, with GPUs by these words; it reads its device."""
    host.sh(f"docker rm -f one >/dev/null 2>&1 || :; docker run -d --name one {gpus} tiny /bin/sleep 100000", timeout_s=120)
    assert host.sh(READS).endswith("reads")


def test_a_reload_takes_what_a_hook_let_in_and_leaves_what_systemd_was_told_of(older: LabHost) -> None:
    run(older, "--gpus device=0")
    older.sh("systemctl daemon-reload")
    assert older.sh(READS).endswith("lost")
    run(older, "--device /dev/nvidiactl")
    older.sh("systemctl daemon-reload")
    assert older.sh(READS).endswith("reads")
    older.sh("mv /dev/char/10:229 /root/; systemctl daemon-reload")
    try:
        assert older.sh(READS).endswith("reads"), "systemd takes the numbers out of the path: no link is needed"
    finally:
        older.sh("mv /root/10:229 /dev/char/")
