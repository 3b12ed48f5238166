"""Judges what NVML says of a GPU's health: whether it answers at all, its memory's errors, and why its clocks are held down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Gpu, Host
from nearsocket.model.verdicts.groups import quoted
from nearsocket.model.verdicts.reading import because, listed, mapping, named, nvml_gpu, told, why

#: Reasons by which the card itself holds its clocks down (nvml.h, nvmlClocksEventReason*), and what to look at for each.
BY_HARDWARE = {
    "hw-slowdown": "heat, the power brake or a power draw above its limit",
    "hw-thermal-slowdown": "heat: airflow, fans, the intake's temperature",
    "hw-power-brake-slowdown": "the power brake: the server's power supplies or a power cap of its management controller",
}
#: The driver lowers the clocks a little so that the card stays below its limit.
BY_HEAT = "sw-thermal-slowdown"


def judge_presence(host: Host, gpu: Gpu) -> Finding:
    """Whether NVML lists a GPU that the PCI bus shows."""
    subject = named(gpu)
    ask = f"nvidia-smi -L; sudo lspci -vs {quoted(gpu.pci)}; sudo dmesg | grep -E 'NVRM|Xid'"
    if not host.source("nvml").ok:
        return unknown(subject, f"whether it answers is not known: {why(host, 'nvml')}", because(host, "nvml"), ask)
    listing = mapping(host, "nvml").get("gpus")
    if not isinstance(listing, list):
        return unknown(subject, "whether it answers is not known: NVML lists nothing", (told("nvml", listing),), ask)
    others = [str(entry.get("pci")) for entry in listing if isinstance(entry, Mapping)]
    evidence = told("nvml gpus", listed(others))
    if gpu.pci in others:
        return passed(subject, "NVML lists it", (evidence,))
    summary = "the PCI bus shows it, NVML does not list it: it fell off the bus, failed to start, or has no driver"
    remedy = f"{ask}  # then stop what uses the GPUs and reboot; power the server off where that does not help"
    return failed(subject, summary, (told(f"pci {gpu.pci} driver", gpu.driver or "none"), evidence), remedy)


def judge_ecc(host: Host, gpu: Gpu) -> Finding:
    """Errors of one GPU's memory since the driver was loaded, and rows that wait for a reset."""
    subject, entry = named(gpu), nvml_gpu(host, gpu)
    ask = f"nvidia-smi -i {quoted(gpu.pci)} -q -d ECC,ROW_REMAPPER"
    ecc = _map(entry, "ecc")
    if ecc.get("current") is None:
        refusal = str(_map(entry, "errors").get("nvmlDeviceGetEccMode", ""))
        if "not supported" in refusal.lower():
            return not_applicable(subject, "this GPU has no ECC", (told("nvmlDeviceGetEccMode", refusal),))
        return _untold(host, subject, entry, refusal, ask)
    remap = _map(ecc, "remap")
    shown = tuple(_counted(gpu, ecc, remap))
    reset = f"{ask}  # then stop what uses the GPU and: sudo nvidia-smi -i {quoted(gpu.pci)} -r"
    if remap.get("failed"):
        return failed(subject, "a broken row of its memory could not be remapped: the card is to be replaced", shown, ask)
    if remap.get("pending"):
        return failed(subject, "a broken row of its memory waits to be remapped at the GPU's next reset", shown, reset)
    uncorrected, corrected = ecc.get("uncorrected"), ecc.get("corrected")
    if uncorrected:
        summary = f"{uncorrected} memory errors that could not be corrected since the driver was loaded"
        return failed(subject, summary, shown, f"{reset}; replace a card that goes on so")
    if corrected:
        summary = f"{corrected} memory errors, all corrected, since the driver was loaded"
        return warned(subject, summary, shown, f"{ask}  # watch whether they grow: a count that does announces worse")
    if not ecc["current"]:
        return not_applicable(subject, "ECC is off: errors are not counted", shown)
    if uncorrected is None or corrected is None:
        return _untold(host, subject, entry, "NVML does not tell its errors", ask)
    more = "" if remap else "; remapped rows are not told"
    return passed(subject, f"no memory error since the driver was loaded{more}", shown)


def judge_clocks(host: Host, gpu: Gpu) -> Finding:
    """Whether the card holds its clocks down at this moment, and why. An idle card's and a power cap's reasons are no fault."""
    subject, entry = named(gpu), nvml_gpu(host, gpu)
    ask = f"nvidia-smi -i {quoted(gpu.pci)} -q -d PERFORMANCE,TEMPERATURE,POWER"
    reasons = entry.get("throttle")
    if not isinstance(reasons, list):
        return _untold(host, subject, entry, "NVML does not tell why its clocks are as they are", ask)
    celsius = entry.get("temperature_c")
    heat = () if celsius is None else (told(f"nvml temperature {gpu.pci}", f"{celsius} C"),)
    shown = (told(f"nvml clocks {gpu.pci}", listed(reasons)), *heat)
    hard = [str(reason) for reason in reasons if reason in BY_HARDWARE]
    if hard:
        # The general reason comes with the one that says why; alone it stands for all three.
        causes = [BY_HARDWARE[reason] for reason in hard if reason != "hw-slowdown"] or [BY_HARDWARE["hw-slowdown"]]
        return failed(subject, f"the card slows itself down ({', '.join(hard)})", shown, f"{ask}  # look at {'; '.join(causes)}")
    if BY_HEAT in reasons:
        summary = f"the driver holds its clocks down for heat ({BY_HEAT})"
        return warned(subject, summary, shown, f"{ask}  # look at airflow, fans, the intake's temperature")
    return passed(subject, f"nothing slows it down (reasons: {listed(reasons)})", shown)


def _counted(gpu: Gpu, ecc: Mapping[str, Any], remap: Mapping[str, Any]) -> Iterator[Evidence]:
    yield told(f"nvml ecc {gpu.pci}", ", ".join(f"{key} {ecc[key]}" for key in sorted(ecc) if key != "remap"))
    if remap:
        yield told(f"nvml remapped rows {gpu.pci}", ", ".join(f"{key} {remap[key]}" for key in sorted(remap)))


def _map(entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, Mapping) else {}


def _untold(host: Host, subject: str, entry: Mapping[str, Any], reason: Optional[str], ask: str) -> Finding:
    """NVML was not read, does not list the GPU, or does not tell this."""
    if not host.source("nvml").ok:
        return unknown(subject, f"not known: {why(host, 'nvml')}", because(host, "nvml"), ask)
    said = (reason or "NVML does not tell it") if entry else "NVML does not list it (see gpu.present)"
    return unknown(subject, f"not known: {said}", (Evidence("nvml", said),), ask)
