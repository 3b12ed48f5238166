"""Judges kernel parameters that decide, or seem to decide, where memory lies."""

from __future__ import annotations

from nearsocket.model.finding import Evidence, Finding, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import because, files, refused, told, why


def judge_numa_balancing(host: Host) -> Finding:
    """kernel.numa_balancing: 0 is right for bound engines."""
    value = host.sysctl.get("kernel.numa_balancing")
    if value is None:
        return _not_read(host, "kernel.numa_balancing")
    evidence = (told("/proc/sys/kernel/numa_balancing", value),)
    if value == "0":
        return passed(host.name, "0: the kernel moves no pages of its own accord", evidence)
    summary = f"{value}: the kernel unmaps pages to watch their use and moves them; bound engines pay for it and gain nothing"
    return warned(host.name, summary, evidence, _set("kernel.numa_balancing", "0"))


def judge_zone_reclaim(host: Host) -> Finding:
    """vm.zone_reclaim_mode with the kernel's LRU: what the value does, and that nobody may rely on it."""
    value = host.sysctl.get("vm.zone_reclaim_mode")
    if value is None:
        return _not_read(host, "vm.zone_reclaim_mode")
    evidence = [told("/proc/sys/vm/zone_reclaim_mode", value)]
    if value == "0":
        return passed(host.name, "0, the default: a full near node spills to far ones, so engines have to be bound", evidence)
    lru = files(host, "kernel.mm").get("lru_gen/enabled")
    evidence.append(told("kernel.mm lru_gen/enabled", why(host, "kernel.mm") if lru is None else lru))
    if lru is None and refused(host, "kernel.mm"):
        look = "cat /sys/kernel/mm/lru_gen/enabled"
        return unknown(host.name, f"{value}: its effect depends on the kernel's LRU, which is not known", evidence, look)
    multi = lru is not None and _number(lru) & 1
    if multi and not _number(value) & 6:
        summary = f"{value} has no effect with the multi-generational LRU (lru_gen {lru}): buffers go far all the same"
        return warned(host.name, summary, evidence, _set("vm.zone_reclaim_mode", "0") + "  # and bind the engines")
    summary = f"{value} helps with this kernel's LRU and may stop helping with the next: no cure to rely on"
    return passed(host.name, summary, evidence)


def _not_read(host: Host, name: str) -> Finding:
    path = "/proc/sys/" + name.replace(".", "/")
    if not refused(host, "kernel.sysctl"):
        absent = Evidence("kernel.sysctl", f"{path} is not there")
        return not_applicable(host.name, f"this kernel has no {name}", (absent,))
    return unknown(host.name, f"not known: {why(host, 'kernel.sysctl')}", because(host, "kernel.sysctl"), f"cat {path}")


def _set(name: str, value: str) -> str:
    return f"sudo sysctl -w {name}={value}; echo '{name} = {value}' | sudo tee /etc/sysctl.d/90-numa.conf"


def _number(text: str) -> int:
    """A decimal or 0x number; 0 for anything else."""
    try:
        return int(text.strip(), 0)
    except ValueError:
        return 0
