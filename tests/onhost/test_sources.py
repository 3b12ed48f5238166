from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import containers, driver, kernel, nodes, packages, pci, units
from nearsocket.onhost.collect.files import Context
from tests.onhost.standins import commands, tree


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


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
        "/sys/devices/pci0000:00/0000:00:1f.0/net/eth0/mtu": "1500\n",
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
    )
    commands(tools, dpkg_query=f"printf '{''.join(lines)}'")
    assert packages.packages(Context(root)).text == (
        "libnccl2\t2.30.7-1\tii\nlinux-image-amd64\t6\trc\nnvidia-driver-595\t595.45.04-1\thi\n"
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


INSPECT: dict[str, Any] = {
    "Id": "ab" * 32,
    "Name": "/sglang",
    "Image": "sha256:" + "cd" * 32,
    "Config": {
        "Image": "lmsysorg/sglang:v0.5",
        "Env": ["NCCL_DEBUG=INFO", "HF_TOKEN=canary", "PATH=/bin"],
        "Entrypoint": ["python3"],
        "Cmd": ["-m", "sglang.launch_server", "--api-key", "canary"],
    },
    "State": {"Pid": 77, "Status": "running"},
    "HostConfig": {
        "RestartPolicy": {"Name": "always"},
        "Privileged": False,
        "CapAdd": ["SYS_NICE"],
        "SecurityOpt": None,
        "IpcMode": "private",
        "ShmSize": 67108864,
        "CpusetCpus": "0-3",
        "CpusetMems": "0",
        "CgroupParent": "x.slice",
        "Runtime": "nvidia",
        "DeviceRequests": [
            {"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]},
            {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]},
        ],
        "Devices": [{"PathOnHost": "/dev/nvidia0"}],
    },
    "Mounts": [{"Type": "bind", "Source": "/models", "Destination": "/models"}],
}


def test_a_container_is_cut_to_the_contract_without_secrets(root: Path, tools: Path, tmp_path: Path) -> None:
    tree(root, {"/run/docker.sock": ""})
    (tmp_path / "inspect").write_text(json.dumps([INSPECT]))
    commands(tools, docker=f'case "$1" in ps) echo {"ab" * 32};; inspect) cat {tmp_path}/inspect;; esac')
    (one,) = containers.containers(Context(root)).data
    assert one["runtime"] == "docker" and one["name"] == "sglang" and one["pid"] == 77 and one["shm_size_bytes"] == 67108864
    assert one["env"] == {"NCCL_DEBUG": "INFO"}
    assert one["command"] == ["python3", "-m", "sglang.launch_server", "--api-key", "<redacted>"]
    assert one["device_requests"][0] == "driver= count=-1 ids= capabilities=gpu"
    assert one["cdi_devices"] == ["nvidia.com/gpu=0"] and one["devices"] == ["/dev/nvidia0"]
    assert one["mounts"] == [{"source": "/models", "destination": "/models", "type": "bind"}]
    assert "canary" not in json.dumps(one)


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("exec sleep 60", SourceStatus.TIMEOUT, "docker ps -q --no-trunc: no answer in 0.3 s"),
        ("echo 'permission denied while trying to connect' >&2; exit 1", SourceStatus.DENIED, "docker ps: exit code 1"),
        ("echo 'daemon is sick' >&2; exit 1", SourceStatus.ERROR, "daemon is sick"),
        ('[ "$1" = ps ] && echo a || echo "not json"', SourceStatus.ERROR, "docker inspect"),
    ],
)
def test_a_runtime_that_fails_is_a_reason(
    script: str, status: SourceStatus, reason: str, root: Path, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_LIMIT_S", 0.3 if status is SourceStatus.TIMEOUT else 8)
    tree(root, {"/run/docker.sock": ""})
    commands(tools, docker=script)
    source = containers.containers(Context(root))
    assert source.status is status and reason in str(source.reason)


def test_one_runtime_s_fault_leaves_the_other_s_containers(root: Path, tools: Path, tmp_path: Path) -> None:
    tree(root, {"/run/docker.sock": "", "/run/containers/storage": "<folder>"})
    (tmp_path / "inspect").write_text(json.dumps([INSPECT]))
    commands(tools, docker="exit 1", podman=f'case "$1" in ps) echo {"ab" * 32};; inspect) cat {tmp_path}/inspect;; esac')
    source = containers.containers(Context(root))
    assert [one["runtime"] for one in source.data] == ["podman"] and "docker ps: exit code 1" in str(source.reason)


def test_runtimes_that_never_ran_are_not_asked(root: Path, tools: Path) -> None:
    commands(tools, docker="echo asked >&2; exit 9", podman="echo asked >&2; exit 9")
    assert containers.containers(Context(root)).status is SourceStatus.ABSENT
    assert containers.docker_info(Context(root)).status is SourceStatus.ABSENT


def test_docker_info_is_cut_and_a_dead_daemon_is_an_error(root: Path, tools: Path) -> None:
    tree(root, {"/run/docker.sock": ""})
    info = {"ServerVersion": "28.3", "Runtimes": {"runc": {}, "nvidia": {}}, "CDISpecDirs": ["/etc/cdi"], "Name": "canary"}
    commands(tools, docker=f"echo '{json.dumps(info)}'")
    data = containers.docker_info(Context(root)).data
    assert data["Runtimes"] == ["nvidia", "runc"] and data["CDISpecDirs"] == ["/etc/cdi"] and "canary" not in str(data)
    commands(tools, docker="""echo '{"ServerErrors": ["Cannot connect to the Docker daemon"]}'; exit 1""")
    source = containers.docker_info(Context(root))
    assert source.status is SourceStatus.ERROR and "Cannot connect" in str(source.reason)


SHOW = """Id=docker.service
LoadState=loaded
ActiveState=active
SubState=running
MainPID=12
NUMAPolicy=bind
NUMAMask=0-1
AllowedMemoryNodes=0
ExecStart={ path=/usr/bin/dockerd ; argv[]=/usr/bin/dockerd ; }
ControlGroup=/system.slice/docker.service

Id=ssh.service
LoadState=loaded
ActiveState=active
ExecStart={ path=/usr/sbin/sshd ; argv[]=/usr/sbin/sshd -D ; }

Id=llm.service
LoadState=loaded
ActiveState=active
ExecStart={ path=/usr/bin/env ; argv[]=/usr/bin/env API_KEY=canary vllm serve --api-key canary --port 1 ; }

Id=vllm-old.service
LoadState=not-found
"""


def test_units_that_matter_are_kept_and_their_secrets_are_not(root: Path, tools: Path, tmp_path: Path) -> None:
    tree(root, {"/run/systemd/system": "<folder>"})
    (tmp_path / "show").write_text(SHOW)
    commands(tools, systemctl=f'[ "$1" = show ] && cat {tmp_path}/show || echo "docker.service loaded active running x"')
    first, second = units.units(Context(root)).data
    assert (first["id"], first["main_pid"], first["numa_policy"], first["allowed_memory_nodes"]) == (
        "docker.service",
        12,
        "bind",
        "0",
    )
    assert second["id"] == "llm.service" and second["main_pid"] == 0
    assert "--port 1" in second["exec_start"] and "canary" not in json.dumps([first, second])


def test_timers_are_told_and_no_systemd_is_absent(root: Path, tools: Path) -> None:
    commands(tools, systemctl="printf 'Id=apt-daily.timer\\nActiveState=active\\nUnitFileState=enabled\\nLoadState=loaded\\n'")
    assert units.timers(Context(root)).status is SourceStatus.ABSENT
    tree(root, {"/run/systemd/system": "<folder>"})
    assert units.timers(Context(root)).data == [{"id": "apt-daily.timer", "active": "active", "enabled": "enabled"}]


def test_the_toolkit_and_cdi_are_told(root: Path, tools: Path) -> None:
    commands(tools, nvidia_ctk="echo 'NVIDIA Container Toolkit CLI version 1.17.8'")
    tree(root, {"/etc/cdi/nvidia.yaml": "cdiVersion: 0.6.0\n", "/etc/nvidia-container-runtime/config.toml": "x = 1\n"})
    assert driver.toolkit(Context(root)).data == {"version": "1.17.8", "config": "x = 1"}
    assert containers.cdi(Context(root)).data == {"/etc/cdi/nvidia.yaml": "cdiVersion: 0.6.0"}


def test_device_links_to_nvidia_are_listed(root: Path) -> None:
    tree(root, {"/dev/char/195:0": "-> ../nvidia0", "/dev/char/1:3": "-> ../null"})
    assert driver.dev_char(Context(root)).data == [{"link": "195:0", "target": "../nvidia0"}]
