from __future__ import annotations

import os
from pathlib import Path

import pytest

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import containers, driver, kernel, nodes, packages, pci
from nearsocket.onhost.collect.files import Context
from tests.onhost.standins import commands, tree

GPU = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3d:00.0"


def test_gpus_nics_and_their_bridges_are_read_with_links_and_path(root: Path) -> None:
    files = {
        f"{GPU}/vendor": "0x10de\n",
        f"{GPU}/class": "0x030200\n",
        f"{GPU}/numa_node": "-1\n",
        f"{GPU}/current_link_speed": "32.0 GT/s PCIe\n",
        f"{GPU}/current_link_width": "16\n",
        f"{GPU}/driver": "-> /sys/bus/pci/drivers/nvidia",
        "/sys/devices/pci0000:3a/0000:3a:00.0/class": "0x060400\n",
        "/sys/devices/pci0000:3a/0000:3a:00.0/max_link_speed": "16.0 GT/s PCIe\n",
        "/sys/devices/pci0000:00/0000:00:1f.0/class": "0x020000\n",
        "/sys/devices/pci0000:00/0000:00:1f.0/vendor": "0x15b3\n",
        "/sys/devices/pci0000:00/0000:00:1f.0/virtio0/net/eth0/mtu": "1500\n",
        "/sys/devices/pci0000:00/0000:00:02.0/class": "0x030000\n",
        "/sys/devices/pci0000:00/0000:00:02.0/vendor": "0x1a03\n",
    }
    tree(root, files)
    for address, target in (
        ("0000:3d:00.0", f"../../../..{GPU}"),
        ("0000:00:1f.0", "../../../devices/pci0000:00/0000:00:1f.0"),
        ("0000:00:02.0", "../../../devices/pci0000:00/0000:00:02.0"),
    ):
        tree(root, {f"/sys/bus/pci/devices/{address}": f"-> {target}"})
    data = pci.pci(Context(root)).data
    assert set(data) == {"0000:3d:00.0", "0000:3a:00.0", "0000:00:1f.0"}
    gpu = data["0000:3d:00.0"]
    assert gpu["numa_node"] == "-1" and gpu["current_link_speed"] == "32.0 GT/s PCIe" and "max_link_width" not in gpu
    assert gpu["path"] == ["0000:3a:00.0"] and gpu["root"] == "pci0000:3a" and gpu["net"] == []
    assert data["0000:3a:00.0"]["max_link_speed"] == "16.0 GT/s PCIe" and data["0000:3a:00.0"]["path"] == []
    assert data["0000:00:1f.0"]["net"] == ["eth0"]


def test_no_pci_is_absent(root: Path) -> None:
    assert pci.pci(Context(root)).status is SourceStatus.ABSENT


def test_nodes_and_cpus_are_read_as_they_stand(root: Path) -> None:
    tree(
        root,
        {
            "/sys/devices/system/node/online": "0-1\n",
            "/sys/devices/system/node/node0/cpulist": "0-3\n",
            "/sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 5 kB\n",
            "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "4\n",
            "/sys/devices/system/node/node0/other": "x\n",
            "/sys/devices/system/cpu/cpu0/topology/core_id": "0\n",
        },
    )
    assert nodes.nodes(Context(root)).data == {
        "online": "0-1",
        "node0/cpulist": "0-3",
        "node1/meminfo": "Node 1 MemTotal: 5 kB",
        "node0/hugepages/hugepages-2048kB/nr_hugepages": "4",
    }
    assert nodes.cpus(Context(root)).data == {"cpu0/topology/core_id": "0"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission_are_denied(root: Path) -> None:
    tree(root, {"/sys/devices/system/node/online": "0"})
    (root / "sys/devices/system/node/online").chmod(0)
    assert nodes.nodes(Context(root)).status is SourceStatus.DENIED


def test_kernels_their_modules_and_the_next_boot_are_told(root: Path) -> None:
    tree(
        root,
        {
            "/lib/modules/6.1.0-30-amd64/modules.dep": "updates/dkms/nvidia.ko.xz: x\nkernel/fs/ext4.ko: y\n",
            "/lib/modules/6.1.0-31-amd64/modules.dep": "",
            "/lib/modules/6.1.0-31-amd64/updates/dkms/nvidia.ko": "",
            "/lib/modules/leftover/x": "",
            "/boot/vmlinuz": "-> vmlinuz-6.1.0-31-amd64",
        },
    )
    data = kernel.images(Context(root)).data
    assert data["installed"] == ["6.1.0-30-amd64", "6.1.0-31-amd64"] and data["default"] == "6.1.0-31-amd64"
    assert data["nvidia_module"] == {
        "6.1.0-30-amd64": ["/lib/modules/6.1.0-30-amd64/updates/dkms/nvidia.ko.xz"],
        "6.1.0-31-amd64": ["/lib/modules/6.1.0-31-amd64/updates/dkms/nvidia.ko"],
    }
    tree(root, {"/boot/grub/grubenv": "saved_entry=gnulinux-advanced-x>gnulinux-6.1.0-30-amd64-advanced-x\n"})
    assert kernel.images(Context(root)).data["default"] == "6.1.0-30-amd64"


def test_tuned_s_profile_file_is_found_by_name_never_by_path(root: Path) -> None:
    tree(root, {"/etc/tuned/active_profile": "hpc-compute\n", "/usr/lib/tuned/profiles/hpc-compute/tuned.conf": "[sysctl]\n"})
    assert kernel.tuned(Context(root)).data == {"active_profile": "hpc-compute", "profile/tuned.conf": "[sysctl]"}
    tree(root, {"/etc/tuned/active_profile": "../../secret\n", "/secret/tuned.conf": "canary", "/etc/secret/tuned.conf": "canary"})
    assert "canary" not in str(kernel.tuned(Context(root)).data)


def test_dpkg_s_packages_and_holds_are_read(root: Path, tools: Path) -> None:
    tree(root, {"/var/lib/dpkg/status": ""})
    lines = (
        r"bash\t5\tii \n",
        r"nvidia-driver-595\t595.45.04-1\thi \n",
        r"libnccl2\t2.30.7-1\tii \n",
        r"linux-image-amd64\t6\trc \n",
        r"nvlsm\t2025.06.5-1\tii \n",
        r"libnvoptix1:amd64\t595.45.04-1\tii \n",
    )
    commands(tools, dpkg_query=f"printf '{''.join(lines)}'")
    assert packages.packages(Context(root)).text == (
        "libnccl2\t2.30.7-1\tii\nlibnvoptix1:amd64\t595.45.04-1\tii\nlinux-image-amd64\t6\trc\n"
        "nvidia-driver-595\t595.45.04-1\thi\nnvlsm\t2025.06.5-1\tii\n"
    )
    assert packages.holds(Context(root)).text == "nvidia-driver-595\n"


def test_rpm_s_packages_and_versionlock_are_read(root: Path, tools: Path) -> None:
    commands(tools, rpm=r"printf 'kernel\t6\tii\nnvidia-driver\t595\tii\nzlib\t1\tii\n'")
    tree(root, {"/etc/dnf/plugins/versionlock.list": "nvidia-driver-3:595*\n"})
    assert packages.packages(Context(root)).text == "kernel\t6\tii\nnvidia-driver\t595\tii\n"
    assert packages.holds(Context(root)).text == "nvidia-driver-3:595*"
    commands(tools, rpm="echo broken >&2; exit 1")
    with pytest.raises(OSError, match=r"rpm: exit code 1: broken"):
        packages.packages(Context(root))


def test_upgrade_and_modprobe_files_keep_what_matters(root: Path) -> None:
    tree(
        root,
        {
            "/etc/apt/apt.conf.d/20auto": 'APT::Periodic::Unattended-Upgrade "1";\n',
            "/etc/apt/apt.conf.d/01x": "Acquire::http::Proxy;\n",
            "/etc/modprobe.d/a.conf": "# note\nblacklist nouveau\noptions nvidia NVreg_X=1\noptions snd x=1\n",
            "/lib/modprobe.d/b.conf": "options snd x=1\n",
        },
    )
    assert list(packages.upgrades(Context(root)).data) == ["/etc/apt/apt.conf.d/20auto"]
    assert packages.modprobe(Context(root)).data == {"/etc/modprobe.d/a.conf": "blacklist nouveau\noptions nvidia NVreg_X=1"}
    assert packages.upgrades(Context(root / "none")).status is SourceStatus.ABSENT


def test_nvidia_smi_s_exit_code_is_explained(root: Path, tools: Path) -> None:
    tree(root, {"/proc/driver/nvidia/version": "NVRM"})
    commands(tools, nvidia_smi="echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    source = driver.smi(Context(root))
    assert source.status is SourceStatus.ERROR
    assert source.reason == (
        "nvidia-smi: exit code 18 (module and library versions differ): Failed to initialize NVML: Driver/library version mismatch"
    )
    commands(tools, nvidia_smi='echo "$@"')
    assert driver.topo(Context(root)).text == "topo -m\n"
    assert driver.topo(Context(root / "none")).status is SourceStatus.ABSENT


def test_the_driver_s_files_modules_and_libraries_are_told(root: Path, tools: Path) -> None:
    commands(tools, ldconfig="true", modinfo='[ "$2" = next ] && exit 1; echo 595.45.04')
    tree(
        root,
        {
            "/sys/module/nvidia/version": "595.45.04\n",
            "/sys/module/nouveau/x": "",
            "/proc/driver/nvidia/gpus/0000:3d:00.0/information": "Model: X\n",
            "/usr/lib64/libcuda.so.595.45.04": "",
            "/usr/lib64/libcuda.so.1": "-> libcuda.so.595.45.04",
        },
    )
    context = Context(root, {"kernel.images": Source(SourceStatus.OK, data={"default": "next", "installed": ["next"]})})
    assert driver.module(context).data == {"nvidia/version": "595.45.04", "nvidia/.present": "", "nouveau/.present": ""}
    assert driver.files(context).data == {"gpus/0000:3d:00.0/information": "Model: X"}
    assert driver.libraries(context).data == {"/usr/lib64/libcuda.so.1": "libcuda.so.595.45.04"}
    assert driver.modinfo(context).data == {os.uname().release: "595.45.04", "next": None}


def test_fabric_manager_s_unit_version_and_switches_are_told(root: Path, tools: Path) -> None:
    commands(
        tools,
        systemctl="echo LoadState=loaded; echo ActiveState=active",
        nv_fabricmanager="echo 'Fabric Manager version is : 595.45.04'",
    )
    tree(root, {"/sys/bus/pci/devices/0000:05:00.0/vendor": "0x10de\n", "/sys/bus/pci/devices/0000:05:00.0/class": "0x068000\n"})
    assert driver.fabricmanager(Context(root)).data == {"unit": "active", "version": "595.45.04", "nvswitches": 1}


def test_the_toolkit_and_cdi_are_told(root: Path, tools: Path) -> None:
    commands(tools, nvidia_ctk="echo 'NVIDIA Container Toolkit CLI version 1.17.8'")
    tree(root, {"/etc/cdi/nvidia.yaml": "cdiVersion: 0.6.0\n", "/etc/nvidia-container-runtime/config.toml": "x = 1\n"})
    assert driver.toolkit(Context(root)).data == {"version": "1.17.8", "config": "x = 1"}
    assert containers.cdi(Context(root)).data == {"/etc/cdi/nvidia.yaml": "cdiVersion: 0.6.0"}


def test_device_links_to_nvidia_are_listed(root: Path) -> None:
    tree(root, {"/dev/char/195:0": "-> ../nvidia0", "/dev/char/1:3": "-> ../null"})
    assert driver.dev_char(Context(root)).data == [{"link": "195:0", "target": "../nvidia0"}]
