#!/usr/bin/python3 -IS
"""A stand-in for nvidia-smi: what it says comes from NVML's stand-in and the lab's description, so that both tell one story.

Known: no argument, -L, topo -m, -q, -q -x, --query-gpu=... and --query-compute-apps=... with --format=csv[,noheader][,nounits].
Faults by files: `nvidia-smi-hang`, `version-mismatch` (exit code 18, as the real one), and those of the library. Python 3.9; few
imports, since an emulated machine takes seconds for what the real one has in C.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

LIBRARY = os.environ.get("NEARSOCKET_STANDIN_NVML", "libnvidia-ml.so.1")
DESCRIPTION = os.environ.get("NEARSOCKET_STANDIN_GPUS", "/etc/nearsocket-standin/gpus.conf")
FAULTS = os.environ.get("NEARSOCKET_STANDIN_FAULTS", "/run/nearsocket-standin/faults")
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
LEVELS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


class Failed(Exception):
    """NVML said no; `code` is its number, which nvidia-smi ends with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Nvml:
    """The library, call by call."""

    def __init__(self) -> None:
        try:
            self.lib = ctypes.CDLL(LIBRARY)
        except OSError:
            raise Failed(12, "couldn't find libnvidia-ml.so library in your system") from None
        self.lib.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInitWithFlags", ctypes.c_uint(0))

    def call(self, name: str, *args: object) -> None:
        """One call. Raises Failed."""
        code = getattr(self.lib, name)(*args)
        if code:
            raise Failed(code, self.lib.nvmlErrorString(code).decode())

    def text(self, name: str, *handle: object) -> str:
        """A text that NVML writes into a buffer."""
        out = ctypes.create_string_buffer(96)
        self.call(name, *handle, out, ctypes.c_uint(96))
        return out.value.decode()

    def number(self, name: str, *args: object) -> int:
        """A number that NVML writes."""
        out = ctypes.c_ulonglong(0)
        self.call(name, *args, ctypes.byref(out))
        return out.value

    def handles(self) -> list[ctypes.c_void_p]:
        """All GPUs."""
        found = []
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            found.append(handle)
        return found


class Process(ctypes.Structure):
    """NVML's `nvmlProcessInfo_t`."""

    _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint))


class Gpu:
    """What is shown of one GPU."""

    def __init__(self, nvml: Nvml, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self.name = nvml.text("nvmlDeviceGetName", handle)
        self.uuid = nvml.text("nvmlDeviceGetUUID", handle)
        info = (ctypes.c_uint * 17)()
        nvml.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(info))
        self.bus_id = bytes(info)[36:68].split(b"\0")[0].decode()
        memory = (ctypes.c_ulonglong * 3)()
        nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        self.total_mib, self.free_mib, self.used_mib = (size >> 20 for size in memory)
        modes = (ctypes.c_int(0), ctypes.c_int(0))
        nvml.call("nvmlDeviceGetEccMode", handle, *(ctypes.byref(mode) for mode in modes))
        self.values = {
            "persistence_mode": "Enabled" if nvml.number("nvmlDeviceGetPersistenceMode", handle) else "Disabled",
            "temperature.gpu": str(nvml.number("nvmlDeviceGetTemperature", handle, 0)),
            "ecc.mode.current": "Enabled" if modes[0].value else "Disabled",
            "ecc.errors.uncorrected.volatile.total": str(nvml.number("nvmlDeviceGetTotalEccErrors", handle, 1, 0)),
            "clocks_event_reasons.active": f"0x{nvml.number('nvmlDeviceGetCurrentClocksEventReasons', handle):016x}",
            "pcie.link.gen.current": str(nvml.number("nvmlDeviceGetCurrPcieLinkGeneration", handle)),
            "pcie.link.gen.max": str(nvml.number("nvmlDeviceGetMaxPcieLinkGeneration", handle)),
            "pcie.link.width.current": str(nvml.number("nvmlDeviceGetCurrPcieLinkWidth", handle)),
            "pcie.link.width.max": str(nvml.number("nvmlDeviceGetMaxPcieLinkWidth", handle)),
            "power.draw": f"{nvml.number('nvmlDeviceGetPowerUsage', handle) / 1000:.2f}",
        }
        self.affinity, self.node = self._affinity(nvml)

    def _affinity(self, nvml: Nvml) -> tuple[str, str]:
        words = (ctypes.c_ulong * 16)()
        try:
            nvml.call("nvmlDeviceGetCpuAffinity", self.handle, 16, words)
        except Failed:
            return "N/A", "N/A"
        cpus = ranges([64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1])
        nvml.call("nvmlDeviceGetMemoryAffinity", self.handle, 16, words, 0)
        return cpus, ranges([64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1])


def ranges(numbers: list[int]) -> str:
    """`0-3,8` of sorted numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def topology(nvml: Nvml, gpus: list[Gpu]) -> str:
    """`topo -m`: the matrix, with the real one's tabs and its header underlined, into a pipe too."""
    header = "\t".join(f"GPU{at}" for at in range(len(gpus))) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    lines = [f"\t\033[4m{header}\033[0m"]
    for at, one in enumerate(gpus):
        words = []
        for other in gpus:
            level = None if one is other else nvml.number("nvmlDeviceGetTopologyCommonAncestor", one.handle, other.handle)
            words.append(" X " if level is None else LEVELS[level])
        lines.append(f"GPU{at}\t" + "\t".join(words) + f"\t{one.affinity}\t{one.node}\t\tN/A")
    return "\n".join(lines) + "\n" + LEGEND


def query(gpus: list[Gpu], driver: str, names: list[str], form: list[str]) -> str:
    """`--query-gpu`: csv with nvidia-smi's header. Raises Failed for a name that is not known here."""
    units = {"memory.total": " MiB", "memory.used": " MiB", "memory.free": " MiB", "power.draw": " W"}
    rows = []
    for index, gpu in enumerate(gpus):
        known = {
            **gpu.values,
            "index": str(index),
            "name": gpu.name,
            "uuid": gpu.uuid,
            "gpu_bus_id": gpu.bus_id,
            "pci.bus_id": gpu.bus_id,
            "driver_version": driver,
            "memory.total": str(gpu.total_mib),
            "memory.used": str(gpu.used_mib),
            "memory.free": str(gpu.free_mib),
        }
        missing = [name for name in names if name not in known]
        if missing:
            raise Failed(2, f'Field "{missing[0]}" is not a valid field to query.')
        rows.append(", ".join(known[name] + ("" if "nounits" in form else units.get(name, "")) for name in names))
    head = [", ".join(f"{name} [{units[name].strip()}]" if name in units and "nounits" not in form else name for name in names)]
    return "\n".join([*([] if "noheader" in form else head), *rows]) + "\n"


def applications(nvml: Nvml, gpus: list[Gpu], names: list[str], form: list[str]) -> str:
    """`--query-compute-apps`: a row for each process on each GPU. Raises Failed for a name that is not known here."""
    aliases = {"name": "process_name", "used_gpu_memory": "used_memory"}
    wanted = [aliases.get(name, name) for name in names]
    headings = {"pid": "pid", "process_name": "process_name", "gpu_uuid": "gpu_uuid", "used_memory": "used_gpu_memory [MiB]"}
    missing = [name for name in wanted if name not in headings]
    if missing:
        raise Failed(2, f'Field "{missing[0]}" is not a valid field to query.')
    rows = [] if "noheader" in form else [", ".join(headings[name] for name in wanted)]
    for gpu in gpus:
        count, found = ctypes.c_uint(256), (Process * 256)()
        nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", gpu.handle, ctypes.byref(count), found)
        for one in found[: count.value]:
            used = f"{one.used >> 20}" + ("" if "nounits" in form else " MiB")
            known = {"pid": str(one.pid), "process_name": program(one.pid), "gpu_uuid": gpu.uuid, "used_memory": used}
            rows.append(", ".join(known[name] for name in wanted))
    return "".join(f"{row}\n" for row in rows)


def program(pid: int) -> str:
    """The first word of its command line, as the real one shows it; `[Not Found]` where it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:  # noqa: PTH123 - pathlib costs seconds under emulation
            return stream.read(4096).split(b"\0")[0].decode(errors="replace")
    except OSError:
        return "[Not Found]"


def details(gpus: list[Gpu], driver: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """What -q tells: for each GPU its address and rows."""
    return [
        (
            gpu.bus_id,
            [
                ("Product Name", gpu.name),
                ("Persistence Mode", gpu.values["persistence_mode"]),
                ("GPU UUID", gpu.uuid),
                ("Driver Version", driver),
                ("PCIe Generation Current", gpu.values["pcie.link.gen.current"]),
                ("PCIe Generation Max", gpu.values["pcie.link.gen.max"]),
                ("Link Width Current", gpu.values["pcie.link.width.current"] + "x"),
                ("FB Memory Total", f"{gpu.total_mib} MiB"),
                ("FB Memory Used", f"{gpu.used_mib} MiB"),
                ("ECC Mode Current", gpu.values["ecc.mode.current"]),
                ("ECC Volatile Uncorrectable", gpu.values["ecc.errors.uncorrected.volatile.total"]),
                ("GPU Current Temp", gpu.values["temperature.gpu"] + " C"),
            ],
        )
        for gpu in gpus
    ]


def escape(text: str) -> str:
    """Text between two tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_xml(gpus: list[Gpu], driver: str) -> str:
    """`-q -x`: element names as nvidia-smi makes them of the rows' names."""
    parts = [
        '<?xml version="1.0" ?>\n<nvidia_smi_log>',
        f"\t<driver_version>{escape(driver)}</driver_version>",
        f"\t<attached_gpus>{len(gpus)}</attached_gpus>",
    ]
    for address, rows in details(gpus, driver):
        parts.append(f'\t<gpu id="{address}">')
        parts += [f"\t\t<{key.lower().replace(' ', '_')}>{escape(value)}</{key.lower().replace(' ', '_')}>" for key, value in rows]
        parts.append("\t</gpu>")
    return "\n".join([*parts, "</nvidia_smi_log>"]) + "\n"


def answer(words: list[str]) -> str:
    """The whole output for a command line. Raises Failed."""
    nvml = Nvml()
    driver = nvml.text("nvmlSystemGetDriverVersion")
    gpus = [Gpu(nvml, handle) for handle in nvml.handles()]
    if words == ["-L"]:
        return "".join(f"GPU {at}: {gpu.name} (UUID: {gpu.uuid})\n" for at, gpu in enumerate(gpus))
    if words == ["topo", "-m"]:
        return topology(nvml, gpus)
    if words[:1] == ["-q"]:
        if "-x" in words:
            return as_xml(gpus, driver)
        head = f"\n==============NVSMI LOG (stand-in)==============\n\nDriver Version : {driver}\nAttached GPUs  : {len(gpus)}\n"
        told = ((address, "".join(f"    {key:<36}: {value}\n" for key, value in rows)) for address, rows in details(gpus, driver))
        return head + "".join(f"\nGPU {address}\n{rows}" for address, rows in told)
    options = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
    if "query-compute-apps" in options:
        return applications(nvml, gpus, options["query-compute-apps"].split(","), options.get("format", "csv").split(","))
    if "query-gpu" in options:
        return query(gpus, driver, options["query-gpu"].split(","), options.get("format", "csv").split(","))
    if not words:
        rows = [
            f"| {at:>3}  {one.name:<56} {one.bus_id} {one.used_mib:>6}MiB / {one.total_mib}MiB |\n" for at, one in enumerate(gpus)
        ]
        return f"NVIDIA-SMI {driver} (stand-in)    Driver Version: {driver}\n{''.join(rows)}"
    raise Failed(2, f"Invalid combination of input arguments: {' '.join(words)} (this is a stand-in).")


def library_version() -> str:
    """`580.95` of a library that cannot be initialized."""
    out = ctypes.create_string_buffer(96)
    ctypes.CDLL(LIBRARY).nvmlSystemGetNVMLVersion(out, ctypes.c_uint(96))
    return ".".join(out.value.decode().split(".")[1:3])


def main() -> int:
    """Answer, or say as the real one why not."""
    while os.access(f"{FAULTS}/nvidia-smi-hang", os.F_OK):
        time.sleep(0.1)
    try:
        sys.stdout.write(answer(sys.argv[1:]))
    except Failed as error:
        if error.code == 18:
            # The real one's two lines; its version has no leading number of CUDA's and two parts.
            print(f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {library_version()}")
        elif error.code == 9:
            print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. (stand-in)")
        else:
            print(f"{error}")
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
