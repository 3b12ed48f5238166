"""GPUs for show: one description, and NVML, nvidia-smi, CDI and the emulator's arguments made from it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lab import qemu
from lab.errors import LabError
from lab.shapes import SHAPES
from lab.standins import equip
from lab.standins.engine.sglang import gpus as engine_gpus
from lab.standins.gpu import describe, packages
from nearsocket.model.parsers import topology
from tests.standins.libraries import built

FOLDER = Path(packages.__file__).parent
SHAPE = SHAPES["gpus"]
#: The collector's NVML source in a process of its own, since a library stays loaded.
READ = """
import json, sys
from nearsocket.onhost.collect import nvml
from nearsocket.onhost.collect.files import Context
class Loaded(Context):
    has_nvidia_driver = True
source = nvml.nvml(Loaded())
print(json.dumps({"status": source.status.value, "reason": source.reason, "data": source.data}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("nvml.c", tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1")


@pytest.fixture
def environ(library: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "gpus.conf").write_text(describe.render(SHAPE))
    (tmp_path / "faults").mkdir()
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "NEARSOCKET_STANDIN_NVML": str(library),
        "NEARSOCKET_STANDIN_GPUS": str(tmp_path / "gpus.conf"),
        "NEARSOCKET_STANDIN_FAULTS": str(tmp_path / "faults"),
        "NEARSOCKET_STANDIN_NO_MODULE": "1",
    }


def plant(environ: dict[str, str], name: str, text: str = "") -> None:
    (Path(environ["NEARSOCKET_STANDIN_FAULTS"]) / name).write_text(text)


def smi(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "nvidia_smi.py"), *words], env=environ, capture_output=True, text=True, timeout=30
    )


def nvml(environ: dict[str, str]) -> Any:
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip("no pynvml here")
    done = subprocess.run([sys.executable, "-c", READ], env=environ, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_the_collector_reads_every_value_of_every_gpu_without_a_refusal_that_a_real_card_would_not_give(
    environ: dict[str, str],
) -> None:
    source = nvml(environ)
    assert (
        source["status"] == "ok"
        and source["data"]["driver_version"] == packages.VERSION
        and source["data"]["cuda_version"] == 13000
    )
    assert [gpu["pci"] for gpu in source["data"]["gpus"]] == [gpu.pci for gpu in describe.gpus(SHAPE)]
    first = source["data"]["gpus"][0]
    assert first["name"].endswith("(stand-in)") and first["numa_node"] == 0 and first["persistence"] is True
    assert first["pcie"] == {"gen": 5, "width": 16, "max_gen": 5, "max_width": 16}
    assert first["links"] == {"0000:41:00.0": "NODE", "0000:61:00.0": "SYS", "0000:81:00.0": "SYS"}
    assert set(first["p2p"].values()) == {"chipset-not-supported"} and first["nvlinks_active"] == 0
    sound = {"corrected": 0, "uncorrected": 0, "pending": False, "failed": False}
    assert (
        first["ecc"] == {"current": True, "pending": True, "uncorrected": 0, "corrected": 0, "remap": sound}
        and first["errors"] == {}
    )


@pytest.mark.parametrize(
    ("fault", "text", "path", "value"),
    [
        ("ecc-1", "7", ("ecc", "uncorrected"), 7),
        ("ecc-corrected-1", "3", ("ecc", "corrected"), 3),
        ("remap-pending-1", "", ("ecc", "remap", "pending"), True),
        ("power-cap-1", "", ("throttle",), ["sw-power-cap"]),
        ("throttle-1", "", ("throttle",), ["hw-slowdown", "hw-thermal-slowdown"]),
        ("persistence-off-1", "", ("persistence",), False),
        ("link-gen-1", "3", ("pcie", "gen"), 3),
        ("link-width-1", "8", ("pcie", "width"), 8),
        ("nvml-node-1", "", ("cpus",), None),
    ],
)
def test_a_fault_file_changes_that_value_of_that_gpu_alone(
    environ: dict[str, str], fault: str, text: str, path: tuple[str, ...], value: object
) -> None:
    before = nvml(environ)["data"]["gpus"]
    plant(environ, fault, text)
    after = nvml(environ)["data"]["gpus"]
    found = after[1]
    for step in path:
        found = found[step]
    assert found == value
    assert [gpu for gpu in after if gpu["index"] != 1] == [gpu for gpu in before if gpu["index"] != 1]


def test_a_missing_gpu_is_gone_from_nvml_and_nvidia_smi(environ: dict[str, str]) -> None:
    plant(environ, "missing-1")
    assert [gpu["pci"] for gpu in nvml(environ)["data"]["gpus"]] == ["0000:21:00.0", "0000:61:00.0", "0000:81:00.0"]
    assert smi(environ, "-L").stdout.count("GPU ") == 3


def test_versions_that_differ_end_nvidia_smi_with_18_and_nvml_with_an_error(environ: dict[str, str]) -> None:
    plant(environ, "version-mismatch")
    done = smi(environ, "topo", "-m")
    assert done.returncode == 18 and done.stdout == (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
    )
    source = nvml(environ)
    assert source["status"] == "error" and "version mismatch" in source["reason"]


def test_without_the_module_nvidia_smi_ends_with_9(environ: dict[str, str]) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("an NVIDIA module is loaded here")
    del environ["NEARSOCKET_STANDIN_NO_MODULE"]
    assert smi(environ, "-L").returncode == 9


@pytest.mark.parametrize("fault", ["nvidia-smi-hang", "nvml-hang"])
def test_a_hanging_nvidia_smi_gives_no_answer(environ: dict[str, str], fault: str) -> None:
    plant(environ, fault)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, str(FOLDER / "nvidia_smi.py"), "-L"], env=environ, capture_output=True, timeout=1)


def test_the_matrix_is_read_by_the_parser_and_says_what_the_description_says(environ: dict[str, str]) -> None:
    table = topology.parse(smi(environ, "topo", "-m").stdout)
    assert [gpu.index for gpu in table.gpus] == [0, 1, 2, 3] and table.gpus[0].node == 0
    assert [(link.a, link.b, link.word) for link in table.links] == [
        *((0, 1, "NODE"), (0, 2, "SYS"), (0, 3, "SYS")),
        *((1, 2, "SYS"), (1, 3, "SYS"), (2, 3, "NODE")),
    ]


def test_queries_are_csv_with_units_and_unknown_fields_are_refused(environ: dict[str, str]) -> None:
    lines = smi(environ, "--query-gpu=index,memory.total,driver_version", "--format=csv").stdout.splitlines()
    assert lines[:2] == ["index, memory.total [MiB], driver_version", f"0, {describe.MEMORY_MIB} MiB, {packages.VERSION}"]
    bare = smi(environ, "--query-gpu=memory.total", "--format=csv,noheader,nounits").stdout.splitlines()
    assert bare == [str(describe.MEMORY_MIB)] * 4
    assert smi(environ, "--query-gpu=colour", "--format=csv").returncode == 2
    heading = smi(environ, "--query-compute-apps=pid,name,used_memory", "--format=csv").stdout
    assert heading == "pid, process_name, used_gpu_memory [MiB]\n"
    nobody = smi(environ, "--query-compute-apps=pid,name", "--format=csv,noheader")
    assert (nobody.returncode, nobody.stdout) == (0, "")
    assert smi(environ, "--query-compute-apps=colour", "--format=csv").returncode == 2
    assert smi(environ, "--reset-everything").returncode == 2


def test_the_full_query_is_well_formed_xml_and_names_itself_in_text(environ: dict[str, str]) -> None:
    root = xml.fromstring(smi(environ, "-q", "-x").stdout)
    assert next(gpu.get("id") for gpu in root.findall("gpu")) == "00000000:21:00.0"
    assert root.findtext("driver_version") == packages.VERSION
    assert "stand-in" in smi(environ, "-q").stdout and "stand-in" in smi(environ).stdout


def test_the_emulator_gets_a_bridge_on_the_right_node_for_each_gpu_and_names_the_bus_of_every_other_device() -> None:
    line = describe.emulator_arguments(SHAPE)
    assert [word.split("numa_node=")[1].split(",")[0] for word in line if "pxb-pcie" in word] == ["0", "0", "1", "1"]
    assert describe.emulator_arguments(SHAPES["two-socket"]) == []
    vm = qemu.Vm("x", "u", SHAPE, "tcg", Path("/k"), "initrd", "disk", 2222)
    words = qemu.arguments(vm)
    devices = [after for word, after in pairwise(words) if word == "-device"]
    assert all("bus=" in device for device in devices)


def test_the_engine_reads_the_same_description(tmp_path: Path) -> None:
    (tmp_path / "gpus.conf").write_text(describe.render(SHAPE))
    found = engine_gpus.parse((tmp_path / "gpus.conf").read_text())
    assert [(gpu.index, gpu.pci, gpu.node) for gpu in found] == [(gpu.index, gpu.pci, gpu.node) for gpu in describe.gpus(SHAPE)]
    assert [gpu.bus_id for gpu in found] == [0x21000, 0x41000, 0x61000, 0x81000]


def test_a_kernel_image_tells_its_release() -> None:
    image = bytearray(0x1000)
    image[0x202:0x206] = b"HdrS"
    image[0x20E:0x210] = (0x400).to_bytes(2, "little")
    image[0x600:0x640] = b"6.12.1+deb13-cloud-amd64 (someone@example.org) #1 SMP".ljust(0x40, b"\0")
    assert packages.kernel_release(bytes(image)) == "6.12.1+deb13-cloud-amd64"
    with pytest.raises(LabError, match="expected an x86 kernel image"):
        packages.kernel_release(bytes(0x1000))


def test_a_change_of_any_source_is_another_build() -> None:
    assert packages.digest("6.12.1", "trixie") != packages.digest("6.12.2", "trixie")
    assert all((FOLDER / name).is_file() for name in packages.SOURCES)


def test_a_dkms_package_lays_the_modules_sources_and_says_how_they_are_built() -> None:
    files = {path: content.decode() for path, content, _mode in packages.dkms_sources("1.2.3")}
    assert set(files) == {f"/usr/src/nvidia-1.2.3/{name}" for name in ("nvidia.c", "Makefile", "dkms.conf")}
    assert "M=${dkms_tree}/nvidia/1.2.3/build STANDIN_VERSION=1.2.3 modules" in files["/usr/src/nvidia-1.2.3/dkms.conf"]


def test_every_file_for_the_guest_says_that_it_is_a_stand_in() -> None:
    files = {path: content for path, content, _mode in equip.files("gpus", [("Packages", b"Description: (stand-in)")])}
    unmarked = [path for path, content in files.items() if b"stand-in" not in content.lower() and b"standin" not in content.lower()]
    # Docker's settings are JSON of Docker's own keys; the engine's modules are of the package whose first line says it.
    assert [path for path in unmarked if "/sglang/" not in path] == ["/etc/docker/daemon.json"]
