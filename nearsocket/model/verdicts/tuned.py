"""Judges tuned's active profile against what is in force."""

from __future__ import annotations

from nearsocket.model.finding import Evidence, Finding, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host
from nearsocket.model.verdicts.reading import because, files, listed, refused, told, why

#: Profiles made for saving power or for desktops: they lower clocks or let CPUs sleep deeply.
SLOW = frozenset(
    {"powersave", "balanced", "balanced-battery", "laptop-battery-powersave", "laptop-ac-powersave", "spindown-disk", "desktop"}
)


def judge_profile(host: Host) -> Finding:
    """The active profile by its name, and the kernel parameters that its file sets against those in force."""
    read = files(host, "tuned")
    if not read:
        if refused(host, "tuned"):
            return unknown(
                host.name, f"tuned's profile is not known: {why(host, 'tuned')}", because(host, "tuned"), "tuned-adm active"
            )
        return not_applicable(host.name, f"no tuned here: {why(host, 'tuned')}", because(host, "tuned"))
    profiles = read.get("active_profile", "").split()
    evidence = [told("tuned active_profile", read.get("active_profile", ""))]
    if not profiles:
        return not_applicable(host.name, "tuned is there and no profile is active", evidence)
    name = " ".join(profiles)
    slow = [profile for profile in profiles if profile in SLOW]
    if slow:
        return warned(host.name, f"profile {listed(slow)} saves power", evidence, "sudo tuned-adm profile throughput-performance")
    wanted = sysctls(read.get("profile/tuned.conf", ""))
    compared = {key: value for key, value in wanted.items() if key in host.sysctl}
    other = [
        f"{key} is {host.sysctl[key]}, the profile sets {value}" for key, value in compared.items() if host.sysctl[key] != value
    ]
    evidence += [
        Evidence(f"/proc/sys/{key.replace('.', '/')}", f"{host.sysctl[key]} (profile: {value})") for key, value in compared.items()
    ]
    if other:
        remedy = "tuned-adm verify; grep -rn . /etc/sysctl.d  # one owner: change the profile, or leave the parameter to it"
        return warned(host.name, f"profile {name}, but {listed(other)}", evidence, remedy)
    said = f"; {listed(compared)} as it sets them" if compared else ""
    return passed(host.name, f"profile {name}{said}", evidence)


def sysctls(conf: str) -> dict[str, str]:
    """The plain numbers of the `[sysctl]` part of a tuned.conf; computed (`${...}`) and conditional ones (`>3`) are left out."""
    found: dict[str, str] = {}
    part = ""
    for line in conf.splitlines():
        bare = line.partition("#")[0].strip()
        if bare.startswith("["):
            part = bare.strip("[]")
        elif part == "sysctl" and "=" in bare:
            key, _, value = bare.partition("=")
            if value.strip().lstrip("-").isdigit():
                found[key.strip().replace("/", ".")] = value.strip()
    return found
