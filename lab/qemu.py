"""The emulator's command line, made from values: what machine the guest sees, and what the host gives it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.shapes import Shape
from lab.standins.gpu.describe import emulator_arguments

BINARY = "qemu-system-x86_64"

#: Quiet boot on the serial line; eth0 by that name; a panic reboots at once, as a server's watchdog would make it.
KERNEL_LINE = "root=/dev/vda rw console=ttyS0 quiet loglevel=4 net.ifnames=0 panic=1 systemd.show_status=no random.trust_cpu=on"


@dataclass(frozen=True)
class Vm:
    """Everything the emulator is told. `initrds` are joined by the caller into `initrd`; paths in `folder` are relative to it."""

    name: str
    uuid: str
    shape: Shape
    accel: str
    kernel: Path
    initrd: str
    disk: str
    ssh_port: int
    loadvm: str | None = None


def topology_arguments(shape: Shape) -> list[str]:
    """The arguments that make sockets, nodes, CPUs, memory and distances."""
    arguments = [
        "-m",
        f"{shape.memory_mib}M",
        "-smp",
        f"{shape.cpus},sockets={shape.sockets},cores={shape.cores_per_socket},threads=1",
    ]
    for number, node in enumerate(shape.nodes):
        backed = f",memdev=m{number}" if node.memory_mib else ""
        if node.memory_mib:
            arguments += ["-object", f"memory-backend-ram,id=m{number},size={node.memory_mib}M"]
        arguments += ["-numa", f"node,nodeid={number}{backed}"]
    for number, node in enumerate(shape.nodes):
        for core in node.cores:
            arguments += ["-numa", f"cpu,node-id={number},socket-id={node.socket},core-id={core}"]
    for one in range(len(shape.nodes)):
        for other in range(one + 1, len(shape.nodes)):
            arguments += ["-numa", f"dist,src={one},dst={other},val={shape.distance(one, other)}"]
    return arguments


def accel_arguments(accel: str) -> list[str]:
    """KVM with the host's CPU, or emulation with every feature that the emulator knows."""
    if accel == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


def frame_arguments(accel: str) -> list[str]:
    """What every machine of ours has: no default devices, no window, no user configuration."""
    return [BINARY, "-machine", "q35", *accel_arguments(accel), "-nodefaults", "-no-user-config", "-display", "none"]


def arguments(vm: Vm) -> list[str]:
    """The whole command line; the emulator runs in the machine's folder, which keeps its socket paths short.

    `restrict=on` cuts the guest off from every network but the forwarded port on the loopback address.
    """
    line = [
        *frame_arguments(vm.accel),
        "-name",
        f"nearsocket-lab-{vm.name}",
        "-uuid",
        vm.uuid,
        *topology_arguments(vm.shape),
        *emulator_arguments(vm.shape),
        "-kernel",
        str(vm.kernel),
        "-initrd",
        vm.initrd,
        "-append",
        KERNEL_LINE,
        "-drive",
        f"file={vm.disk},if=none,id=d0,format=qcow2,discard=unmap",
        "-device",
        "virtio-blk-pci,drive=d0,bus=pcie.0",
        "-netdev",
        f"user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:{vm.ssh_port}-:22",
        "-device",
        "virtio-net-pci,netdev=n0,romfile=,bus=pcie.0",
        "-device",
        "virtio-rng-pci,bus=pcie.0",
        "-serial",
        "file:console.log",
        "-qmp",
        "unix:qmp.sock,server=on,wait=off",
        "-pidfile",
        "qemu.pid",
    ]
    return [*line, "-loadvm", vm.loadvm] if vm.loadvm else line
