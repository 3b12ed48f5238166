"""The GPUs' temperatures by NVML, in a child under a time limit: NVML can hang."""

from __future__ import annotations

import importlib
import time
from typing import Any

from nearsocket.model.errors import NearsocketError
from nearsocket.model.probe.thermal import Heat
from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect.files import Context, absent, ok
from nearsocket.onhost.collect.nvml import THROTTLE
from nearsocket.onhost.collect.runner import Job, run_jobs

_LIMIT_S = 10.0


def read_heat() -> tuple[Heat, ...]:
    """Every GPU's. Raises NearsocketError where NVML does not tell: a guard that sees nothing guards nothing."""
    source = run_jobs([Job("heat", _heat, _LIMIT_S)], Context(), time.monotonic() + _LIMIT_S)["heat"]
    if not source.ok or not source.data:
        raise NearsocketError(
            f"expected NVML to tell the GPUs' temperatures, found: {source.reason or 'no GPU'}", "--no-thermal-guard goes without"
        )
    return tuple(Heat(str(one["gpu"]), int(one["celsius"]), tuple(one["reasons"])) for one in source.data)


def _heat(context: Context) -> Source:
    if not context.has_nvidia_driver:
        return absent("the NVIDIA kernel module is not loaded")
    lib: Any = importlib.import_module("pynvml")
    lib.nvmlInit()
    found = []
    for index in range(lib.nvmlDeviceGetCount()):
        handle = lib.nvmlDeviceGetHandleByIndex(index)
        bits = lib.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        reasons = [name for bit, name in THROTTLE.items() if bits & bit]
        found.append({"gpu": index, "celsius": lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU), "reasons": reasons})
    return ok(found)
