"""One machine: its disk and first files are laid, it boots, it is saved, put back, cut off."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from lab import cpio, process, ssh
from lab.children import stream
from lab.errors import LabError
from lab.image import Image
from lab.monitor import Monitor
from lab.qemu import Vm, arguments
from lab.recipe import GUEST
from lab.say import clean, say
from lab.shapes import shape
from lab.state import LabFolder, LabRecord, MachineRecord

#: The snapshot taken after the first boot.
CLEAN = "clean"


class BootFailed(LabError):
    """The machine's process ended, or nobody answered in time."""


class PortTaken(BootFailed):
    """The machine's SSH port is in use by someone else."""


def free_port() -> int:
    """A port on the loopback address that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether the emulator could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def guest_files(lab: LabFolder, machine: MachineRecord) -> list[cpio.Entry]:
    """The files that the first program lays over the root: our programs for the guest, this lab's keys, this machine's name."""
    root = GUEST / "root"
    entries = [
        cpio.file_entry(
            f"lay/{path.relative_to(root)}", path.read_bytes(), 0o755 if "bin" in path.relative_to(root).parts else 0o644
        )
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    keys = ssh.authorized_keys(lab)
    identity = {
        "etc/hostname": (f"{machine.name}\n".encode(), 0o644),
        "etc/hosts": (f"127.0.0.1 localhost {machine.name}\n::1 localhost\n".encode(), 0o644),
        "etc/machine-id": (machine.uuid.replace("-", "").encode() + b"\n", 0o444),
        "etc/ssh/ssh_host_ed25519_key": (lab.host_key.read_bytes(), 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": ((ssh.public(lab.host_key) + "\n").encode(), 0o644),
        "etc/ssh/authorized_keys": (keys, 0o644),
    }
    return [*entries, *(cpio.file_entry(f"lay/{path}", data, mode) for path, (data, mode) in identity.items())]


def lay(record: LabRecord, machine: MachineRecord, image: Image) -> None:
    """Make the machine's folder: a disk that holds what differs from the base, an initrd with its own files."""
    lab = LabFolder(record.name)
    folder = lab.machine(machine.name)
    folder.mkdir(mode=0o700)
    code, tail = stream(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image.disk.resolve()), "-F", "raw", str(folder / "disk.qcow2")],
        lambda _line: None,
    )
    if code:
        raise LabError(f"expected qemu-img to make a disk in {folder}, found: {tail[-1] if tail else 'nothing'}")
    (folder / "initrd").write_bytes(image.initrd.read_bytes() + cpio.archive(guest_files(lab, machine)))


def power_on(record: LabRecord, machine: MachineRecord, image: Image) -> subprocess.Popen[bytes]:
    """Start the machine's process; it outlives the command, in a session of its own."""
    folder = LabFolder(record.name).machine(machine.name)
    for stale in ("qmp.sock", "qemu.pid"):
        (folder / stale).unlink(missing_ok=True)
    vm = Vm(
        machine.name, machine.uuid, shape(record.shape), record.accel, image.kernel.resolve(), "initrd", "disk.qcow2", machine.port
    )
    with (folder / "qemu.log").open("wb") as log:
        return subprocess.Popen(
            arguments(vm), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def _why_ended(folder: Path) -> str:
    lines = (folder / "qemu.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return clean(lines[-1]).removeprefix("qemu-system-x86_64: ") if lines else "it said nothing"


def check_alive(record: LabRecord, machine: MachineRecord, child: subprocess.Popen[bytes]) -> None:
    """BootFailed where the process ended or stands still on a full disk; PortTaken where its port was in use."""
    folder = LabFolder(record.name).machine(machine.name)
    if child.poll() is not None:
        why = _why_ended(folder)
        if "host forwarding" in why:
            raise PortTaken(
                f"expected port {machine.port} of 127.0.0.1 free for {machine.name}, found it occupied", "take another --port"
            )
        raise BootFailed(f"expected {machine.name} to boot, found that its emulator ended: {why}")
    try:
        with Monitor(folder, timeout_s=10) as monitor:
            status = str(monitor.run("query-status")["status"])
    except (OSError, LabError):
        return  # not listening yet, or just ended: the next look tells
    if status == "io-error":
        raise BootFailed(
            f"expected {machine.name} to write to its disk, found the host's disk full",
            "set NEARSOCKET_LAB_STATE to a folder with room",
        )


def settled(record: LabRecord, machine: MachineRecord, timeout_s: float) -> bool:
    """Whether the machine takes commands over SSH and has started all it starts at boot; waits for the latter."""
    if not ssh.answers(machine.port):
        return False
    done = ssh.run(record.name, machine.name, "systemctl is-system-running --wait", timeout_s=timeout_s)
    answer = done.stdout.strip()
    if answer == "degraded":
        failed = ssh.run(record.name, machine.name, "systemctl --failed --plain --no-legend", timeout_s=timeout_s).stdout.split()
        say(machine.name, f"booted, but a unit failed: {failed[0] if failed else 'unknown'}")
    return answer in ("running", "degraded")


def wait(record: LabRecord, running: Sequence[tuple[MachineRecord, subprocess.Popen[bytes]]], timeout_s: float) -> None:
    """Wait until every machine has booted; BootFailed where one ended or the time is over."""
    limit = time.monotonic() + timeout_s
    waiting = list(running)
    while waiting:
        for machine, child in tuple(waiting):
            check_alive(record, machine, child)
            if settled(record, machine, max(10.0, limit - time.monotonic())):
                waiting.remove((machine, child))
        if waiting and time.monotonic() > limit:
            names = ", ".join(machine.name for machine, _ in waiting)
            raise BootFailed(
                f"expected {names} to answer within {timeout_s:.0f} s, found silence", "a busy host needs a longer --timeout"
            )
        if waiting:
            time.sleep(0.3)


def set_clock(record: LabRecord, machine: MachineRecord) -> None:
    """Set the guest's clock to the host's: a machine put back believes in the time of its snapshot."""
    done = ssh.run(record.name, machine.name, f"date --set=@{time.time():.3f}", timeout_s=60)
    if done.returncode:
        raise LabError(f"expected {machine.name} to take the time, found: {clean(done.stderr)}")


def power_off(machine: MachineRecord) -> bool:
    """Cut the machine's power; returns whether it was on."""
    pid = process.of_machine(machine.uuid)
    if pid is None:
        return False
    process.end(pid, machine.uuid)
    return True
