"""Judges kernels and modules: what claims the GPUs, and whether the next kernel has an NVIDIA module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Optional

from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.near import PASSED_THROUGH
from nearsocket.model.snapshot import SourceStatus
from nearsocket.model.verdicts.groups import quoted
from nearsocket.model.verdicts.reading import because, files, listed, mapping, named, refused, text, told, why

#: Drivers that take an NVIDIA GPU before the nvidia module can.
CLAIMERS = ("nouveau", "nova_core", "nova", "nvidiafb")
RENEW = "sudo update-initramfs -u || sudo dracut -f; sudo reboot"
BLACKLIST = "printf 'blacklist nouveau\\nblacklist nova_core\\n' | sudo tee /etc/modprobe.d/gpu-blacklist.conf\n" + RENEW


def judge_conflicts(host: Host) -> Finding:
    """What drives each GPU, and which other modules would like to."""
    drivers = [(named(gpu), gpu.driver, gpu.pci) for gpu in host.gpus]
    evidence = [told(f"pci {pci} driver", driver or "none") for _, driver, pci in drivers]
    kept_away = blacklisted(host)
    evidence += kept_away.values()
    taken = [f"{name} by {driver}" for name, driver, _ in drivers if driver in CLAIMERS]
    if taken:
        return failed(host.name, f"claimed: {listed(taken)}; the nvidia module cannot drive it", evidence, _cure(host, kept_away))
    if not host.modules and refused(host, "kernel.modules"):
        shown = [*evidence, *because(host, "kernel.modules")]
        return unknown(
            host.name, f"the loaded modules are not known: {why(host, 'kernel.modules')}", shown, "lsmod | grep -E 'nouveau|nova'"
        )
    away = [f"{name} by {driver}" for name, driver, _ in drivers if driver in PASSED_THROUGH]
    rivals = sorted(host.modules & set(CLAIMERS))
    evidence.append(Evidence("kernel.modules", f"{len(host.modules)} modules; {listed(rivals)} of {listed(CLAIMERS)}"))
    if rivals:
        summary = f"{listed(rivals)} is loaded: at the next boot it may claim a GPU first"
        return warned(host.name, summary, evidence, _cure(host, kept_away))
    if away:
        ids = listed(pci for _, driver, pci in drivers if driver in PASSED_THROUGH)
        remedy = f"grep -r vfio /etc/modprobe.d /proc/cmdline  # where {ids} should serve this host"
        return warned(host.name, f"kept for virtual machines: {listed(away)}; engines of this host cannot use it", evidence, remedy)
    return passed(
        host.name, f"no other module claims a GPU ({listed(sorted({str(driver) for _, driver, _ in drivers}))})", evidence
    )


def blacklisted(host: Host) -> dict[str, Evidence]:
    """The claimers that modprobe's files or the kernel's command line keep from being loaded, each with where it is said."""
    found: dict[str, Evidence] = {}
    for module in CLAIMERS:
        ways = rf"blacklist\s+{module}|install\s+{module}\s+\S*/(?:false|true)|alias\s+{module}\s+off"
        rule = re.compile(rf"^\s*(?:{ways})\s*$", re.MULTILINE)
        for path, rules in sorted(files(host, "modprobe").items()):
            said = rule.search(rules.replace("-", "_"))
            if said:
                found.setdefault(module, told(f"modprobe {path}", said[0].strip()))
        option = rf"(?:^|\s)(?:rd\.driver|modprobe|module)[._]blacklist=\S*\b{module}\b\S*"
        word = re.search(option, text(host, "kernel.cmdline"))
        if word:
            found.setdefault(module, told("kernel.cmdline", word[0].strip()))
    return found


def _cure(host: Host, kept_away: Mapping[str, Evidence]) -> str:
    """Blacklist what claims or is loaded; where that was done already, the initial RAM disk has not heard of it."""
    claiming = {gpu.driver for gpu in host.gpus} | host.modules
    if claiming.intersection(CLAIMERS) <= set(kept_away):
        return f"{RENEW}  # it is blacklisted already, the initial RAM disk is older"
    return BLACKLIST


def judge_next_kernel(host: Host) -> Finding:
    """Whether the kernel of the next boot has a module of the driver's version."""
    images = mapping(host, "kernel.images")
    modules = images.get("nvidia_module")
    found = {str(k): v for k, v in modules.items() if isinstance(v, list)} if isinstance(modules, Mapping) else {}
    listing = images.get("installed")
    installed = [release for release in listing if isinstance(release, str)] if isinstance(listing, list) else []
    if not installed and host.source("kernel.images").status is SourceStatus.ABSENT and "kernel.images" in host.sources:
        return not_applicable(host.name, "no kernel is installed here: it is started from outside", because(host, "kernel.images"))
    if not installed:
        summary = f"the installed kernels are not known: {why(host, 'kernel.images')}"
        return unknown(host.name, summary, because(host, "kernel.images"), "ls /lib/modules; dkms status")
    if host.kernel and not found.get(host.kernel) and not any(found.values()):
        shown = told("kernel.images", f"installed {listed(installed)}; no nvidia module in any")
        return not_applicable(host.name, "no NVIDIA module in /lib/modules: the driver is not built per kernel here", (shown,))
    default = images.get("default")
    following = default if isinstance(default, str) and default in installed else max(installed, key=release_key)
    sure = following == default
    evidence = [told("kernel.images", f"running {host.kernel}, installed {listed(installed)}, default {default or 'not told'}")]
    evidence.append(told(f"kernel.images nvidia_module {following}", listed(found.get(following) or [])))
    if text(host, "dkms"):
        evidence.append(told("dkms", text(host, "dkms")))
    which = f"kernel {following}" + ("" if sure else ", the newest installed")
    word = quoted(following)
    build = f"sudo apt-get install linux-headers-{word}; sudo dkms autoinstall -k {word}; modinfo -k {word} {_called(found)}"
    if not found.get(following):
        verdict = failed if sure else warned
        return verdict(host.name, f"the next boot takes {which}, and it has no NVIDIA module", evidence, build)
    version: Optional[str] = host.driver.modinfo.get(following)
    library = host.driver.library
    if version and library and version != library:
        evidence += [told(f"driver.modinfo {following}", version), told("driver.libraries", library)]
        summary = f"{which} has module {version}, the libraries are {library}: they differ after the next boot"
        return warned(host.name, summary, evidence, build)
    same = " (the running one)" if following == host.kernel else ""
    return passed(host.name, f"{which}{same} has an NVIDIA module" + (f", {version}" if version else ""), evidence)


def _called(found: Mapping[str, Sequence[object]]) -> str:
    """The module's name by its file, which Debian's packages name nvidia-current.ko."""
    path = next((path for paths in found.values() for path in paths), "nvidia")
    return str(path).rpartition("/")[2].partition(".ko")[0]


def release_key(release: str) -> tuple[tuple[int, str], ...]:
    """A kernel release for sorting: numbers as numbers, so that 6.10 follows 6.9."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in re.findall(r"\d+|[a-z]+", release.lower()))
