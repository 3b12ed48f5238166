"""The host-wide settings that were opted into: what is written, what tuned already owns, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.driver import names
from nearsocket.model.host import Host
from nearsocket.model.plan.values import Decision, Refusal
from nearsocket.model.settings import TuneSettings
from nearsocket.model.text import one_line
from nearsocket.model.verdicts.reading import files
from nearsocket.model.verdicts.tuned import sysctls

#: sysctl key to why a person would set it; the reason stands in the file too.
REASONS: Mapping[str, str] = {
    "kernel.numa_balancing": "automatic balancing unmaps pages to see who uses them; bound engines only pay for it, in faults",
    "vm.zone_reclaim_mode": "1 reclaims near page cache before far memory is taken; multi-generational LRU does not: bind as well",
    "vm.swappiness": "an engine's memory that is swapped out stalls every rank",
}
THP = "transparent_hugepage"
THP_REASON = "how large pages are given; madvise leaves the choice to programs"
BLACKLIST = "blacklist"
UPDATES_REASON = "a driver, kernel or container runtime that upgrades by itself takes the GPUs from what starts next"
#: What unattended-upgrades leaves alone then: regular expressions at the beginning of a name.
KEPT_BACK = (
    *names.BEGINNINGS,
    *names.BESIDE,
    *("linux-image-", "linux-headers-", "linux-modules-", "linux-generic", "linux-image$"),
    *("docker", "containerd", "runc", "podman"),
)


@dataclass(frozen=True)
class Tuning:
    """What is written: sysctl key to value, and the THP mode (None: not written); with decisions and refusals."""

    sysctl: Mapping[str, str]
    thp: Optional[str]
    decisions: tuple[Decision, ...]
    refusals: tuple[Refusal, ...]


def tune(host: Host, wanted: TuneSettings) -> Tuning:
    """The tuning of that host. A key that tuned's active profile sets otherwise is refused: one owner for a setting."""
    asked = {
        "kernel.numa_balancing": wanted.numa_balancing,
        "vm.zone_reclaim_mode": wanted.zone_reclaim_mode,
        "vm.swappiness": wanted.swappiness,
    }
    read = files(host, "tuned")
    profile = one_line(" ".join(read.get("active_profile", "").split()), 60)
    owned = sysctls(read.get("profile/tuned.conf", "")) if profile else {}
    written: dict[str, str] = {}
    decisions: list[Decision] = []
    refusals: list[Refusal] = []
    for key, number in asked.items():
        if number is None:
            continue
        value = str(number)
        if key in owned and owned[key] != value:
            reason = f"tune: {key}={value} is asked for, and tuned's profile {profile} sets {owned[key]}"
            refusals.append(Refusal(host.name, reason, "one owner: change the profile, or take the key out of `tune`"))
        elif key in owned:
            decisions.append(Decision(key, value, f"left to tuned's profile {profile}, which sets the same"))
        else:
            written[key] = value
            decisions.append(Decision(key, value, f"{REASONS[key]} (now {one_line(host.sysctl.get(key, 'not known'), 20)})"))
    thp = wanted.transparent_hugepages
    if thp is not None:
        now = files(host, "kernel.mm").get("transparent_hugepage/enabled", "not known").strip()
        decisions.append(Decision(THP, thp, f"{THP_REASON} (now {one_line(now, 40)})"))
    if wanted.updates == BLACKLIST:
        decisions.append(Decision("unattended upgrades", "without what GPUs depend on", UPDATES_REASON))
        if host.os_id not in ("debian", "ubuntu"):
            reason = f"tune: updates: blacklist is a setting of apt's, and this host is {one_line(host.os_id or 'not known', 40)}"
            refusals.append(Refusal(host.name, reason, "leave it out, or lock the packages: dnf versionlock add"))
    return Tuning(written, thp, tuple(decisions), tuple(refusals))
