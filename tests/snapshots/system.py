"""The sources that hardly differ between fixtures: kernel, packages, driver files, Docker, timers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.snapshots.machine import DRIVER, KERNEL, GpuSpec, uuid

MOUNTS = """\
22 29 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
23 29 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
31 24 0:26 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,inode64
"""


def kernel(release: str = KERNEL) -> dict[str, Any]:
    """Kernel sources: texts and files."""
    return {
        "kernel.release": release,
        "kernel.cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{release} root=UUID=00000000-0000-0000-0000-000000000000 ro quiet iommu=pt",
        "kernel.sysctl": {
            "vm/zone_reclaim_mode": "0",
            "vm/min_free_kbytes": "90112",
            "vm/swappiness": "60",
            "vm/nr_hugepages": "0",
            "vm/overcommit_memory": "0",
            "vm/dirty_ratio": "20",
            "kernel/numa_balancing": "0",
            "kernel/sched_autogroup_enabled": "1",
            "kernel/osrelease": release,
            "kernel/hostname": "gpu1",
        },
        "kernel.mm": {
            "transparent_hugepage/enabled": "always [madvise] never",
            "transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
            "transparent_hugepage/shmem_enabled": "always within_size advise [never] deny force",
            "lru_gen/enabled": "0x0007",
        },
        "kernel.images": {
            "installed": [release],
            "nvidia_module": {release: [f"/lib/modules/{release}/updates/dkms/nvidia.ko"]},
            "default": release,
        },
        "os.release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n',
        "mounts": MOUNTS,
    }


def modules(*names: str) -> str:
    """/proc/modules with these loaded."""
    return "".join(f"{name} 1048576 1 - Live 0x0000000000000000 (O)\n" for name in names)


def driver(gpus: Iterable[GpuSpec], version: str = DRIVER, release: str = KERNEL) -> dict[str, Any]:
    """NVIDIA's driver, all places agreeing."""
    gpus = [gpu for gpu in gpus if gpu.driver == "nvidia"]
    files = {
        "version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (builder@host)  "
        "Tue Sep 23 10:11:41 UTC 2025\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)",
        "params": "EnableStreamMemOPs: 0\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nEnableResizableBar: 1",
    }
    for minor, gpu in enumerate(gpus):
        files[f"gpus/{gpu.pci}/information"] = (
            f"Model: \t\t {gpu.name}\nIRQ:   \t\t {200 + minor}\nGPU UUID: \t {uuid(minor + 1)}\nVideo BIOS: \t 98.02.81.00.07\n"
            f"Bus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {gpu.pci}\n"
            f"Device Minor: \t {minor}\nGPU Firmware: \t {version}\nGPU Excluded:\t No"
        )
    char = [{"path": f"/dev/nvidia{minor}", "major": 195, "minor": minor} for minor in range(len(gpus))]
    char += [{"link": f"/dev/char/195:{minor}", "target": f"../nvidia{minor}"} for minor in range(len(gpus))]
    return {
        "kernel.modules": modules("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia", "overlay"),
        "driver.files": files,
        "driver.module": {"nvidia/version": version, "nvidia/taint": "OE", "nvidia_uvm/.present": ""},
        "driver.modinfo": {release: version},
        "driver.libraries": {
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1": f"libcuda.so.{version}",
            "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": f"libnvidia-ml.so.{version}",
        },
        "nvidia.smi": "".join(f"GPU {i}: {gpu.name} (UUID: {uuid(i + 1)})\n" for i, gpu in enumerate(gpus)),
        "packages": f"nvidia-driver-cuda\t{version}-1\thi \nnvidia-open-kernel-dkms\t{version}-1\thi \ndocker-ce\t5:28.5.1-1\tii \n"
        f"linux-image-{release}\t{release}\tii \nnvidia-container-toolkit\t1.18.0-1\tii \ndkms\t3.0.10-8\tii \n",
        "packages.holds": "nvidia-driver-cuda\nnvidia-open-kernel-dkms\n",
        "dkms": f"nvidia/{version}, {release}, x86_64: installed\n",
        "fabricmanager": {"unit": "inactive", "version": None, "nvswitches": 0},
        "dev.char": char,
        "container.toolkit": {
            "version": "1.18.0",
            "config": "disable-require = false\n[nvidia-container-cli]\n#no-cgroups = false\n",
        },
    }


def services() -> dict[str, Any]:
    """Docker, package timers and the rest of user space."""
    return {
        "packages.upgrades": {"/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "0";'},
        "modprobe": {"/etc/modprobe.d/nvidia-graphics-drivers.conf": "blacklist nouveau"},
        "docker.info": {
            "ServerVersion": "28.5.1",
            "Runtimes": ["io.containerd.runc.v2", "nvidia", "runc"],
            "DefaultRuntime": "runc",
            "CgroupDriver": "systemd",
            "CgroupVersion": "2",
            "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
            "DiscoveredDevices": [],
            "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
            "ExperimentalBuild": False,
        },
        "cdi": {},
        "tuned": {},
        "nccl.conf": {},
        "timers": [{"id": "apt-daily-upgrade.timer", "active": "inactive", "enabled": "disabled"}],
    }
