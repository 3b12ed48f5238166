"""NVML's word on the GPUs, through pynvml. Every call stands alone: what NVML refuses is null, its text kept in `errors`."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Callable, Optional

from nearsocket.model import cpulist
from nearsocket.model.snapshot import Source, SourceStatus
from nearsocket.onhost.collect.files import Context, absent, ok, text_or_none

#: Names of nvmlDeviceGetCurrentClocksEventReasons' bits (nvml.h, nvmlClocksEventReason*); idle and applications clocks
#: included: the verdict is the check's.
THROTTLE = {
    0x1: "gpu-idle",
    0x2: "applications-clocks-setting",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal-slowdown",
    0x40: "hw-thermal-slowdown",
    0x80: "hw-power-brake-slowdown",
    0x100: "display-clock-setting",
}
#: nvmlGpuTopologyLevel_t and nvmlGpuP2PStatus_t (nvml.h), in nvidia-smi's words.
LINKS = {0: "INTERNAL", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
P2P = {
    0: "ok",
    1: "chipset-not-supported",
    2: "gpu-not-supported",
    3: "topology-not-supported",
    4: "disabled-by-regkey",
    5: "not-supported",
    6: "unknown",
}
#: nvmlGpuP2PCapsIndex_t (nvml.h). nvidia-ml-py 13.615.71 has a tuple under this name, which ctypes refuses (seen on an H200).
P2P_READ = 0
_MAX_NVLINKS = 36


def nvml(context: Context) -> Source:
    """Everything that the contract's `nvml` names."""
    if not context.has_nvidia_driver:
        return absent("the NVIDIA kernel module is not loaded")
    try:
        lib = importlib.import_module("pynvml")
    except ImportError as error:
        return absent(f"pynvml: {error}")
    try:
        lib.nvmlInit()
    except lib.NVMLError as error:
        text = f"NVML: {error}"
        if error.value == lib.NVML_ERROR_LIBRARY_NOT_FOUND:
            return absent(text)
        denied = error.value == lib.NVML_ERROR_NO_PERMISSION
        return Source(SourceStatus.DENIED if denied else SourceStatus.ERROR, reason=text)
    errors: dict[str, str] = {}
    ask = _Asker(lib, errors)
    handles = []
    for index in range(ask("nvmlDeviceGetCount") or 0):
        handle = ask("nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            handles.append((index, handle))
    addresses = [_address(ask("nvmlDeviceGetPciInfo", handle)) for _, handle in handles]
    gpus = [_Gpu(lib, context, index, handle).describe() for index, handle in handles]
    _pairs(lib, [handle for _, handle in handles], addresses, gpus)
    driver, version = ask("nvmlSystemGetDriverVersion"), ask("nvmlSystemGetNVMLVersion")
    whole = {
        "driver_version": _text(driver),
        "nvml_version": _text(version),
        "cuda_version": ask("nvmlSystemGetCudaDriverVersion_v2"),
        "gpus": gpus,
    }
    return ok(whole, "; ".join(f"{name}: {text}" for name, text in errors.items())[:300] or None)


class _Asker:
    """Calls NVML by name; a refusal is None, its text noted under the call's name."""

    def __init__(self, lib: ModuleType, errors: dict[str, str]) -> None:
        self.lib, self.errors = lib, errors

    def __call__(self, name: str, *args: Any, note: bool = True) -> Any:
        call: Optional[Callable[..., Any]] = getattr(self.lib, name, None)
        if call is None:
            self.errors[name] = "not in this pynvml"
            return None
        try:
            return call(*args)
        except self.lib.NVMLError as error:
            if note:
                self.errors[name] = str(error)
            return None
        except Exception as error:  # a binding and a library of different ages disagree on one call, not on all
            self.errors[name] = f"{type(error).__name__}: {error}"
            return None


class _Gpu:
    """One GPU's description."""

    def __init__(self, lib: ModuleType, context: Context, index: int, handle: Any) -> None:
        self.lib, self.context, self.index, self.handle = lib, context, index, handle
        self.errors: dict[str, str] = {}
        self.asker = _Asker(lib, self.errors)

    def ask(self, name: str, *args: Any, note: bool = True) -> Any:
        return self.asker(name, self.handle, *args, note=note)

    def describe(self) -> dict[str, Any]:
        lib = self.lib
        ecc, memory = self.ask("nvmlDeviceGetEccMode"), self.ask("nvmlDeviceGetMemoryInfo")
        persistence, power = self.ask("nvmlDeviceGetPersistenceMode"), self.ask("nvmlDeviceGetPowerUsage")
        cpus, memory_nodes = self._affinity()
        return {
            "index": self.index,
            "name": _text(self.ask("nvmlDeviceGetName")),
            "uuid": _text(self.ask("nvmlDeviceGetUUID")),
            "pci": _address(self.ask("nvmlDeviceGetPciInfo")),
            "numa_node": self._node(cpus, memory_nodes),
            "cpus": None if cpus is None else cpulist.render(cpus),
            "memory_nodes": None if memory_nodes is None else cpulist.render(memory_nodes),
            "pcie": {
                "gen": self.ask("nvmlDeviceGetCurrPcieLinkGeneration"),
                "width": self.ask("nvmlDeviceGetCurrPcieLinkWidth"),
                "max_gen": self.ask("nvmlDeviceGetMaxPcieLinkGeneration"),
                "max_width": self.ask("nvmlDeviceGetMaxPcieLinkWidth"),
            },
            "persistence": None if persistence is None else bool(persistence),
            "ecc": {
                "current": None if ecc is None else bool(ecc[0]),
                "pending": None if ecc is None else bool(ecc[1]),
                "uncorrected": self._ecc(lib.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, ecc),
                "corrected": self._ecc(lib.NVML_MEMORY_ERROR_TYPE_CORRECTED, ecc),
                "remap": self._remap(),
            },
            "throttle": self._throttle(),
            "memory": {"total_bytes": memory.total if memory else None, "used_bytes": memory.used if memory else None},
            "temperature_c": self.ask("nvmlDeviceGetTemperature", lib.NVML_TEMPERATURE_GPU),
            "power_w": None if power is None else round(power / 1000, 1),
            "processes": self._processes(),
            "nvlinks_active": self._nvlinks(),
            "p2p": {},
            "links": {},
            "errors": self.errors,
        }

    def _ecc(self, kind: int, mode: Any) -> Optional[int]:
        """Errors since the driver was loaded; not asked where ECC is off or unknown to the device."""
        if not mode or not mode[0]:
            return None
        count = self.ask("nvmlDeviceGetTotalEccErrors", kind, self.lib.NVML_VOLATILE_ECC)
        return None if count is None else int(count)

    def _remap(self) -> Optional[dict[str, Any]]:
        """Rows that were remapped, whether one waits for the next reset, whether one could not be; None where not told."""
        rows = self.ask("nvmlDeviceGetRemappedRows")
        if rows is None:
            return None
        corrected, uncorrected, pending, failed = rows
        return {"corrected": int(corrected), "uncorrected": int(uncorrected), "pending": bool(pending), "failed": bool(failed)}

    def _affinity(self) -> tuple[Optional[frozenset[int]], Optional[frozenset[int]]]:
        cpu_count = max(cpulist.parse(text_or_none(self.context.path("/sys/devices/system/cpu/possible")) or "0-1023")) + 1
        node_count = max(cpulist.parse(text_or_none(self.context.path("/sys/devices/system/node/possible")) or "0-63")) + 1
        cpus = self.ask("nvmlDeviceGetCpuAffinity", (cpu_count + 63) // 64)
        nodes = self.ask("nvmlDeviceGetMemoryAffinity", (node_count + 63) // 64, self.lib.NVML_AFFINITY_SCOPE_NODE)
        return _bits(cpus), _bits(nodes)

    def _node(self, cpus: Optional[frozenset[int]], nodes: Optional[frozenset[int]]) -> Optional[int]:
        """The one node that NVML names, or whose CPUs are NVML's; None where there are several."""
        if nodes is not None and len(nodes) == 1:
            return min(nodes)
        if not cpus:
            return None
        found = set()
        for path in self.context.path("/sys/devices/system/node").glob("node[0-9]*/cpulist"):
            if cpulist.parse(text_or_none(path) or "") & cpus:
                found.add(int(path.parent.name[4:]))
        return min(found) if len(found) == 1 else None

    def _throttle(self) -> Optional[list[str]]:
        known = hasattr(self.lib, "nvmlDeviceGetCurrentClocksEventReasons")
        bits = self.ask("nvmlDeviceGetCurrentClocksEventReasons" if known else "nvmlDeviceGetCurrentClocksThrottleReasons")
        if bits is None:
            return None
        return [THROTTLE.get(1 << n, f"bit-{n}") for n in range(64) if bits >> n & 1]

    def _processes(self) -> Optional[list[dict[str, Optional[int]]]]:
        found = self.ask("nvmlDeviceGetComputeRunningProcesses")
        if found is None:
            return None
        return [{"pid": int(one.pid), "used_bytes": None if one.usedGpuMemory is None else int(one.usedGpuMemory)} for one in found]

    def _nvlinks(self) -> int:
        # A device without NVLink refuses the first link; that is an answer, no fault.
        states = [self.ask("nvmlDeviceGetNvLinkState", link, note=False) for link in range(_MAX_NVLINKS)]
        return sum(1 for state in states if state == 1)


def _pairs(lib: ModuleType, handles: list[Any], addresses: list[str], gpus: list[dict[str, Any]]) -> None:
    """Fill `p2p` (reads) and `links` of each pair of GPUs."""
    for a, first in enumerate(handles):
        ask = _Asker(lib, gpus[a]["errors"])
        for b, second in enumerate(handles):
            if a == b:
                continue
            status = ask("nvmlDeviceGetP2PStatus", first, second, P2P_READ)
            level = ask("nvmlDeviceGetTopologyCommonAncestor", first, second)
            nvlinks = _nvlinks_between(ask, lib, first, addresses[b], gpus[a]["nvlinks_active"], gpus[b]["nvlinks_active"])
            gpus[a]["p2p"][addresses[b]] = None if status is None else P2P.get(status, f"status-{status}")
            word = None if level is None else LINKS.get(level, f"level-{level}")
            gpus[a]["links"][addresses[b]] = f"NV{nvlinks}" if nvlinks else word


def _nvlinks_between(ask: _Asker, lib: ModuleType, first: Any, other: str, mine: int, theirs: int) -> int:
    """Active NVLinks to the other GPU; behind an NVSwitch, all of the fewer ones."""
    if not mine or not theirs:
        return 0
    direct = switched = 0
    for link in range(_MAX_NVLINKS):
        if ask("nvmlDeviceGetNvLinkState", first, link, note=False) != 1:
            continue
        remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", first, link, note=False)
        if remote is not None and _address(remote) == other:
            direct += 1
        elif ask("nvmlDeviceGetNvLinkRemoteDeviceType", first, link, note=False) == lib.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            switched += 1
    return direct or min(switched, theirs)


def _address(info: Any) -> str:
    """`0000:3d:00.0` as sysfs writes it; NVML writes the domain with eight digits."""
    if info is None:
        return ""
    domain, _, rest = (_text(info.busId) or "").lower().partition(":")
    return f"{domain[-4:] if domain.startswith('0000') else domain}:{rest}"


def _text(value: Any) -> Optional[str]:
    if value is None:
        return None
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _bits(words: Any) -> Optional[frozenset[int]]:
    if words is None:
        return None
    return frozenset(64 * at + bit for at, word in enumerate(words) for bit in range(64) if int(word) >> bit & 1)
