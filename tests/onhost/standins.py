"""Stand-ins for what a host has: a folder of commands that comes first on PATH, a tree of files, a pynvml."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import ModuleType
from typing import Any


def commands(folder: Path, **scripts: str) -> Path:
    """A folder of shell scripts by command name (`_` for `-`)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    return folder


def tree(root: Path, files: dict[str, str]) -> Path:
    """Files under a root by absolute path; `-> TARGET` makes a link."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        elif text == "<folder>":
            path.mkdir(exist_ok=True)
        else:
            path.write_text(text)
    return root


class NVMLError(Exception):
    """As pynvml's: a number and a text."""

    def __init__(self, value: int, text: str = "Not Supported") -> None:
        super().__init__(text)
        self.value = value


class Bag:
    """A structure with these fields."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def pynvml(gpus: int = 2, **changes: Any) -> ModuleType:
    """A pynvml of a healthy host: GPUs at 3d:00.0 and 3e:00.0 on node 0, joined by a host bridge. A change is a function."""
    lib = ModuleType("pynvml")
    addresses = [f"00000000:{0x3D + n:02X}:00.0" for n in range(gpus)]
    calls: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "595.45.04",
        "nvmlSystemGetNVMLVersion": lambda: b"13.595.45",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda gpu: "NVIDIA RTX PRO 6000",
        "nvmlDeviceGetUUID": lambda gpu: f"GPU-{gpu}",
        "nvmlDeviceGetPciInfo": lambda gpu: Bag(busId=addresses[gpu]),
        "nvmlDeviceGetEccMode": lambda gpu: [1, 0],
        "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, counter: kind,
        "nvmlDeviceGetRemappedRows": lambda gpu: (1, 0, gpu, 0),
        "nvmlDeviceGetMemoryInfo": lambda gpu: Bag(total=96 << 30, used=1 << 30),
        "nvmlDeviceGetPersistenceMode": lambda gpu: 1,
        "nvmlDeviceGetPowerUsage": lambda gpu: 85_250,
        "nvmlDeviceGetTemperature": lambda gpu, sensor: 41,
        "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: 5,
        "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: 16,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: 16,
        "nvmlDeviceGetCpuAffinity": lambda gpu, words: [0b1111],
        "nvmlDeviceGetMemoryAffinity": lambda gpu, words, scope: [0b1],
        "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: 0x21 | 1 << 40,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [Bag(pid=os.getppid(), usedGpuMemory=None)],
        "nvmlDeviceGetNvLinkState": _not_supported,
        "nvmlDeviceGetNvLinkRemotePciInfo": _not_supported,
        "nvmlDeviceGetNvLinkRemoteDeviceType": _not_supported,
        "nvmlDeviceGetP2PStatus": lambda a, b, index: _refuse_tuples(index),
        "nvmlDeviceGetTopologyCommonAncestor": lambda a, b: 30,
        **changes,
    }
    constants = {
        "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
        "NVML_ERROR_NO_PERMISSION": 4,
        "NVML_MEMORY_ERROR_TYPE_CORRECTED": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_AFFINITY_SCOPE_NODE": 0,
        "NVML_P2P_CAPS_INDEX_READ": (0,),  # as nvidia-ml-py 13.615.71 has it
        "NVML_NVLINK_DEVICE_TYPE_SWITCH": 2,
        "NVMLError": NVMLError,
    }
    for name, value in {**calls, **constants}.items():
        if value is not None:
            setattr(lib, name, value)
    return lib


def _refuse_tuples(index: Any) -> int:
    if not isinstance(index, int):
        raise ctypes.ArgumentError("argument 3: TypeError: Don't know how to convert parameter 3")
    return 1


def _not_supported(*args: Any) -> Any:
    raise NVMLError(3)
