from __future__ import annotations

import importlib
import json
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect import nvml, runner
from nearsocket.onhost.collect.files import Context
from tests.onhost.standins import Bag, NVMLError, pynvml, tree

A, B = "0000:3d:00.0", "0000:3e:00.0"


@pytest.fixture
def host(tmp_path: Path) -> Context:
    files = {
        "/proc/driver/nvidia/version": "NVRM version: 595.45.04\n",
        "/sys/devices/system/cpu/possible": "0-7\n",
        "/sys/devices/system/node/possible": "0-1\n",
        "/sys/devices/system/node/node0/cpulist": "0-3\n",
        "/sys/devices/system/node/node1/cpulist": "4-7\n",
    }
    return Context(tree(tmp_path, files))


def read(host: Context, monkeypatch: pytest.MonkeyPatch, lib: ModuleType) -> Source:
    monkeypatch.setitem(sys.modules, "pynvml", lib)
    source = nvml.nvml(host)
    assert source.data is None or json.dumps(source.data)
    return source


def refuses(value: int = 3, text: str = "Not Supported") -> Any:
    def call(*args: Any) -> Any:
        raise NVMLError(value, text)

    return call


def test_a_healthy_host_is_told_as_the_contract_names_it(host: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    data = read(host, monkeypatch, pynvml()).data
    assert (data["driver_version"], data["nvml_version"], data["cuda_version"]) == ("595.45.04", "13.595.45", 13000)
    first = data["gpus"][0]
    assert first["pci"] == A and first["index"] == 0 and first["uuid"] == "GPU-0"
    assert (first["numa_node"], first["cpus"], first["memory_nodes"]) == (0, "0-3", "0")
    assert first["pcie"] == {"gen": 5, "width": 16, "max_gen": 5, "max_width": 16}
    remap = {"corrected": 1, "uncorrected": 0, "pending": False, "failed": False}
    assert first["ecc"] == {"current": True, "pending": False, "uncorrected": 1, "corrected": 0, "remap": remap}
    assert data["gpus"][1]["ecc"]["remap"]["pending"] is True
    assert first["throttle"] == ["gpu-idle", "sw-thermal-slowdown", "bit-40"]
    assert first["memory"] == {"total_bytes": 96 << 30, "used_bytes": 1 << 30}
    assert (first["persistence"], first["power_w"], first["temperature_c"], first["nvlinks_active"]) == (True, 85.2, 41, 0)
    assert first["p2p"] == {B: "chipset-not-supported"} and first["links"] == {B: "PHB"}
    assert first["processes"][0]["used_bytes"] is None and first["errors"] == {}


def test_what_nvml_refuses_is_null_with_its_words(host: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = pynvml(
        nvmlDeviceGetPowerUsage=refuses(),
        nvmlDeviceGetComputeRunningProcesses=refuses(4, "Insufficient Permissions"),
        nvmlDeviceGetName=None,
    )
    first = read(host, monkeypatch, lib).data["gpus"][0]
    assert first["power_w"] is None and first["processes"] is None and first["name"] is None
    assert first["errors"] == {
        "nvmlDeviceGetPowerUsage": "Not Supported",
        "nvmlDeviceGetComputeRunningProcesses": "Insufficient Permissions",
        "nvmlDeviceGetName": "not in this pynvml",
    }


def test_a_card_that_cannot_remap_rows_says_so_and_keeps_its_counts(host: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read(host, monkeypatch, pynvml(nvmlDeviceGetRemappedRows=refuses())).data["gpus"][0]
    assert first["ecc"]["remap"] is None and first["ecc"]["uncorrected"] == 1
    assert first["errors"] == {"nvmlDeviceGetRemappedRows": "Not Supported"}


def test_the_node_comes_from_the_cpus_where_memory_affinity_is_silent(host: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = pynvml(nvmlDeviceGetMemoryAffinity=refuses(), nvmlDeviceGetCpuAffinity=lambda gpu, words: [0b11110000])
    assert read(host, monkeypatch, lib).data["gpus"][0]["numa_node"] == 1
    both = pynvml(nvmlDeviceGetMemoryAffinity=refuses(), nvmlDeviceGetCpuAffinity=lambda gpu, words: [0b11111111])
    assert read(host, monkeypatch, both).data["gpus"][0]["numa_node"] is None
    none = pynvml(nvmlDeviceGetMemoryAffinity=refuses(), nvmlDeviceGetCpuAffinity=refuses())
    assert read(host, monkeypatch, none).data["gpus"][0]["numa_node"] is None


def test_nvlinks_between_two_gpus_are_counted(host: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def state(gpu: int, link: int) -> int:
        return int(link < 4)

    direct = pynvml(
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda gpu, link: Bag(busId=[b"00000000:3E:00.0", b"00000000:3D:00.0"][gpu]),
    )
    first = read(host, monkeypatch, direct).data["gpus"][0]
    assert first["nvlinks_active"] == 4 and first["links"] == {B: "NV4"}
    switched = pynvml(
        nvmlDeviceGetNvLinkState=lambda gpu, link: int(link < 18),
        nvmlDeviceGetNvLinkRemotePciInfo=lambda gpu, link: Bag(busId="00000000:05:00.0"),
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda gpu, link: 2,
    )
    assert read(host, monkeypatch, switched).data["gpus"][1]["links"] == {A: "NV18"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ((12, "NVML Shared Library Not Found"), SourceStatus.ABSENT),
        ((4, "Insufficient Permissions"), SourceStatus.DENIED),
        ((18, "Driver/library version mismatch"), SourceStatus.ERROR),
    ],
)
def test_nvml_that_does_not_start_is_a_reason(
    host: Context, monkeypatch: pytest.MonkeyPatch, error: tuple[int, str], status: SourceStatus
) -> None:
    source = read(host, monkeypatch, pynvml(nvmlInit=refuses(*error)))
    assert source.status is status and error[1] in str(source.reason)


def test_without_the_kernel_module_nvml_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = read(Context(tmp_path), monkeypatch, pynvml(nvmlInit=refuses(0, "asked")))
    assert source.status is SourceStatus.ABSENT and source.reason == "the NVIDIA kernel module is not loaded"


def test_a_host_without_gpus_has_an_empty_list(host: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(host, monkeypatch, pynvml(gpus=0)).data["gpus"] == []


def test_nvml_that_hangs_is_a_time_out_and_costs_no_other_source(host: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", pynvml(nvmlInit=signal.pause))
    jobs = [
        runner.Job("nvml", nvml.nvml, 0.3),
        runner.Job("after", lambda context: Source(SourceStatus.OK, text="x"), after=("nvml",)),
    ]
    sources = runner.run_jobs(jobs, host, time.monotonic() + 20)
    assert sources["nvml"].status is SourceStatus.TIMEOUT and sources["after"].text == "x"


def test_the_real_pynvml_has_every_call_and_constant_that_is_used() -> None:
    real = importlib.import_module("pynvml")
    missing = [name for name in vars(pynvml()) if not name.startswith("_") and not hasattr(real, name)]
    assert missing == []
