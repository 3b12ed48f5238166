"""Equipping a running machine with the stand-ins: driver packages and their repository, description, CDI, the engine's files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import ssh
from lab.errors import LabError
from lab.image import cached
from lab.recipe import recipe
from lab.say import clean, say
from lab.shapes import shape
from lab.standins.engine import image as engine_image
from lab.standins.gpu import describe, nvidia_ctk, packages
from lab.state import LabRecord, MachineRecord

#: Docker 26 has no folders for CDI by itself, and without them says that it has no driver "cdi", whatever its features say (ran).
DAEMON = '{"features": {"cdi": true}, "cdi-spec-dirs": ["/etc/cdi", "/var/run/cdi"]}\n'
REPOSITORY = "/opt/nearsocket-standin/repo"
#: NVIDIA's container toolkit; on the path of a machine whose toolkit is installed: `ln -s` into /usr/bin.
TOOLKIT = "/opt/nearsocket-standin/nvidia-ctk"
#: Docker reads its setting of CDI at its start. dpkg is asked directly: apt's lists take long under emulation and change nothing.
INSTALL = f"""set -e
mkdir -p {nvidia_ctk.FAULTS}
dpkg --install {REPOSITORY}/*_{packages.VERSION}-0standin1_amd64.deb >/dev/null
ldconfig
modprobe nvidia
udevadm settle
{TOOLKIT} cdi generate --output={nvidia_ctk.OUTPUT}
if systemctl is-active --quiet docker; then systemctl restart docker; fi
nvidia-smi -L
"""


def files(lab_shape: str, driver: list[tuple[str, bytes]]) -> list[tuple[str, bytes, int]]:
    """Everything that goes to the guest: path, content, mode. `driver`: the repository's files by name."""
    made = shape(lab_shape)
    texts = {
        describe.GUEST_PATH: describe.render(made),
        "/etc/apt/sources.list.d/nearsocket-standin.list": f"deb [trusted=yes] file:{REPOSITORY} ./\n",
        "/etc/modules-load.d/nearsocket-standin.conf": "# stand-in\nnvidia\n",
        "/etc/tmpfiles.d/nearsocket-standin.conf": f"d {nvidia_ctk.FAULTS} 0755 root root\n",
        "/etc/docker/daemon.json": DAEMON,
    }
    entries = [(path, text.encode(), 0o644) for path, text in texts.items()]
    entries += [(f"{REPOSITORY}/{name}", content, 0o644) for name, content in driver]
    entries.append((TOOLKIT, Path(nvidia_ctk.__file__).read_bytes(), 0o755))
    return [*entries, *engine_image.files()]


def lay(record: LabRecord, machine: MachineRecord, entries: list[tuple[str, bytes, int]]) -> None:
    """Write files (path, content, mode) on a machine. LabError with its own words where it refuses."""
    sent = subprocess.run(
        ssh.command(record.name, machine.name, ["tar -x -m -C / -f -"], options=("-o", "BatchMode=yes")),
        input=engine_image.pack(entries),
        capture_output=True,
        timeout=120,
        check=False,
    )
    if sent.returncode:
        raise LabError(f"expected {machine.name} to take the stand-ins, found: {clean(sent.stderr.decode(errors='replace'))}")


def equip(record: LabRecord, machine: MachineRecord) -> str:
    """Put the stand-ins on a machine of a shape with GPUs; returns what `nvidia-smi -L` says there."""
    if not shape(record.shape).gpus:
        raise LabError(f"expected a lab of a shape with GPUs, found {record.shape}", "nearsocket lab up --shape gpus")
    chosen = recipe(record.profile)
    image = cached(chosen)
    if image is None or image.digest != record.image:
        raise LabError(
            f"expected the image {record.image} of lab {record.name}, found it gone", f"nearsocket lab down {record.name}"
        )
    folder = packages.ensure(image, chosen.suite)
    driver = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    lay(record, machine, files(record.shape, driver))
    done = ssh.run(record.name, machine.name, INSTALL, timeout_s=180)
    if done.returncode:
        raise LabError(f"expected the stand-in driver to load on {machine.name}, found: {clean(done.stderr or done.stdout)}")
    say(machine.name, "equipped with stand-ins: GPUs for show, an engine")
    return done.stdout
