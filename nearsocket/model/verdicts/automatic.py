"""Judges what can replace the driver: holds on its packages, and upgrades that run by themselves."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any

from nearsocket.model.finding import Evidence, Finding, failed, not_applicable, passed, unknown, warned
from nearsocket.model.host import Host, Package
from nearsocket.model.verdicts.driverversions import driver_packages, package_version
from nearsocket.model.verdicts.groups import quoted
from nearsocket.model.verdicts.reading import because, entries, files, listed, refused, told, why

_SWITCH = re.compile(r'^\s*APT::Periodic::Unattended-Upgrade\s+"?(\w+)"?\s*;', re.MULTILINE)
_APPLY = re.compile(r"^\s*apply_updates\s*=\s*(yes|true|1|on)\b", re.MULTILINE | re.IGNORECASE)
#: Timers that run dnf's automatic upgrades (dnf 4 and 5); the -download and -notifyonly ones install nothing.
_DNF_INSTALLS = "dnf-automatic-install.timer"
_DNF = ("dnf-automatic.timer", _DNF_INSTALLS, "dnf5-automatic.timer")
_EXCLUDED = re.compile(r"Unattended-Upgrade::Package-Blacklist\s*\{(.*?)\}\s*;", re.DOTALL)
_COMMENT = re.compile(r"^\s*(//|#).*$", re.MULTILINE)
_QUOTED = re.compile(r'"([^"]+)"')


def judge_holds(host: Host) -> Finding:
    """Holds on the driver's packages: all, some or none of them."""
    packages = driver_packages(host)
    if not packages:
        return no_packages(host)
    evidence = [told("packages", "\n".join(f"{p.name} {p.version} {p.status}" for p in packages))]
    if not host.source("packages.holds").ok and not host.holds and not any(p.status.startswith("h") for p in packages):
        summary = f"whether the driver's {len(packages)} packages are held is not known: {why(host, 'packages.holds')}"
        return unknown(
            host.name, summary, [*evidence, *because(host, "packages.holds")], "apt-mark showhold || dnf versionlock list"
        )
    open_ones = [p.name for p in packages if not held(host, p)]
    evidence.append(told("packages.holds", "\n".join(sorted(host.holds)) or "none"))
    versions = {package_version(p) for p in packages}
    hold = _hold(host, open_ones)
    if not open_ones:
        if len(versions) > 1:
            summary = f"held at different versions ({listed(sorted(str(v) for v in versions))}): apt reports held broken packages"
            return failed(host.name, summary, evidence, "sudo apt-mark unhold 'nvidia-*' 'libnvidia-*' && sudo apt-get install -f")
        return passed(host.name, f"all {len(packages)} packages of the driver are held", evidence)
    if len(open_ones) < len(packages):
        count = f"{len(packages) - len(open_ones)} of {len(packages)}"
        summary = f"{count} held, but not {listed(open_ones)}: an upgrade breaks or splits the driver"
        return warned(host.name, summary, evidence, hold)
    return warned(host.name, f"none of the driver's {len(packages)} packages is held: the next upgrade replaces it", evidence, hold)


def judge_upgrades(host: Host) -> Finding:
    """Automatic upgrades against the driver's packages."""
    packages = driver_packages(host)
    if not packages:
        return no_packages(host)
    timers = {str(timer.get("id")): timer for timer in entries(host, "timers")}
    if not host.source("timers").ok:
        if not refused(host, "timers"):
            return not_applicable(host.name, f"no timers of systemd: {why(host, 'timers')}", because(host, "timers"))
        summary = f"whether upgrades run by themselves is not known: {why(host, 'timers')}"
        return unknown(host.name, summary, because(host, "timers"), "systemctl list-timers --all 'apt-daily*' 'dnf*-automatic*'")
    evidence = [
        told(f"timers {name}", f"active {t.get('active')}, enabled {t.get('enabled')}") for name, t in sorted(timers.items())
    ]
    evidence = evidence or [Evidence("timers", "none of apt's and dnf's timers is there")]
    settings = files(host, "packages.upgrades")
    apt, dnf = _runs(timers, "apt-daily-upgrade.timer"), [name for name in _DNF if _runs(timers, name)]
    if (apt or dnf) and not settings and refused(host, "packages.upgrades"):
        summary = f"a timer of apt or dnf runs, and what it may do is not known: {why(host, 'packages.upgrades')}"
        return unknown(host.name, summary, [*evidence, *because(host, "packages.upgrades")], "apt-config dump | grep -i unattended")
    switches = [match for path in sorted(settings) for match in _SWITCH.findall(settings[path])]
    deciding = [path for path in sorted(settings) if _SWITCH.search(settings[path]) or _APPLY.search(settings[path])]
    evidence += [told(f"packages.upgrades {path}", settings[path]) for path in deciding]
    # apt reads its files in the order of their names and the last word counts; without a word it upgrades nothing.
    # dnf-automatic only downloads unless its file says otherwise; its -install timer installs whatever the file says.
    applies = any(_APPLY.search(settings[path]) for path in settings)
    on = ["apt-daily-upgrade.timer"] if apt and switches and switches[-1] not in ("0", "false", "no", "off") else []
    on += [name for name in dnf if applies or name == _DNF_INSTALLS]
    if not on:
        return passed(host.name, "no upgrade runs by itself", evidence)
    excluded = [
        word
        for found in settings.values()
        for block in _EXCLUDED.findall(_COMMENT.sub("", found))
        for word in _QUOTED.findall(block)
    ]
    bare = [p.name for p in packages if not held(host, p) and not any(_excludes(word, p.name) for word in excluded)]
    if not bare:
        kept = told("packages.holds", "\n".join(sorted(host.holds)) or f"none; excluded: {listed(excluded)}")
        return passed(host.name, f"{listed(on)} runs, and the driver's packages are held or excluded", [*evidence, kept])
    summary = f"{listed(on)} may replace {listed(bare[:4])}" + (f" and {len(bare) - 4} more" if len(bare) > 4 else "")
    return warned(host.name, summary, evidence, _hold(host, bare))


def held(host: Host, package: Package) -> bool:
    """Whether the package is held: by dpkg's selection, by name, or by a version lock's pattern such as `nvidia-driver-3:580*`."""
    if package.status.startswith("h") or package.name in host.holds or package.name.partition(":")[0] in host.holds:
        return True
    return any(re.match(re.escape(package.name) + r"-\d", lock) or fnmatch.fnmatchcase(package.name, lock) for lock in host.holds)


def _hold(host: Host, names: Iterable[str]) -> str:
    """The command that holds these packages, apt's on Debian and Ubuntu (and where the system is not known), else dnf's."""
    tool = "apt-mark hold" if host.os_id in (None, "debian", "ubuntu") else "dnf versionlock add"
    return f"sudo {tool} {' '.join(quoted(name) for name in names)}"


def no_packages(host: Host) -> Finding:
    """The finding to give where no installed package carries the driver."""
    if refused(host, "packages"):
        return unknown(
            host.name, f"the packages are not known: {why(host, 'packages')}", because(host, "packages"), "dpkg -l 'nvidia*'"
        )
    shown = (
        Evidence("packages", f"{len(host.packages)} packages read, none is the driver's")
        if host.packages
        else because(host, "packages")[0]
    )
    return not_applicable(host.name, "the driver did not come from packages", (shown,))


def _runs(timers: Mapping[str, Mapping[str, Any]], name: str) -> bool:
    return timers.get(name, {}).get("active") in ("active", True)


def _excludes(word: str, name: str) -> bool:
    """Whether an entry of Package-Blacklist, a regular expression at the name's start, takes in the package."""
    try:
        return re.match(word, name) is not None
    except re.error:
        return False
