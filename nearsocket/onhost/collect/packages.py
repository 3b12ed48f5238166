"""Packages of the driver and the container runtimes, holds, unattended upgrades, DKMS and modprobe's files.

apt's own tools are not asked: they may write their cache. dpkg's status says what is held.
"""

from __future__ import annotations

import re

from nearsocket.model.driver import names
from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect import command, redact
from nearsocket.onhost.collect.files import Context, absent, ok, ok_text, read_files, text_or_none

_NAMES = re.compile(
    r"nvidia|cuda|libnccl|docker|containerd|podman|linux-image|linux-headers|dkms|tuned|unattended-upgrades"
    r"|^kernel(-core|-devel|-headers)?$|^libnvidia"
)
_DPKG = ["dpkg-query", "-W", "-f", "${binary:Package}\\t${Version}\\t${db:Status-Abbrev}\\n"]
_RPM = ["rpm", "-qa", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\tii\\n"]
_VERSIONLOCKS = ("/etc/dnf/plugins/versionlock.list", "/etc/dnf/versionlock.toml", "/etc/yum/pluginconf.d/versionlock.list")


def _all(context: Context) -> str:
    """Every package, one a line: name, version, status. Raises FileNotFoundError where there is neither dpkg nor rpm."""
    is_dpkg = context.path("/var/lib/dpkg/status").exists()
    output = command.run(_DPKG if is_dpkg else _RPM, 10)
    if output.code and not output.text:
        raise OSError(f"{'dpkg-query' if is_dpkg else 'rpm'}: exit code {output.code}: {output.error}")
    return output.text


def packages(context: Context) -> Source:
    """The packages that matter here."""
    lines = [line.rstrip() for line in _all(context).splitlines() if _matters(line.partition("\t")[0])]
    return ok_text("".join(f"{line}\n" for line in sorted(lines)))


def _matters(name: str) -> bool:
    return bool(_NAMES.search(name)) or name.startswith((*names.BEGINNINGS, *names.BESIDE))


def holds(context: Context) -> Source:
    """Held packages, one name a line (dpkg), or versionlock's list (rpm)."""
    if context.path("/var/lib/dpkg/status").exists():
        parts = [line.split("\t") for line in _all(context).splitlines()]
        return ok_text("".join(f"{part[0]}\n" for part in sorted(parts) if len(part) == 3 and part[2].startswith("h")))
    for path in _VERSIONLOCKS:
        text = text_or_none(context.path(path))
        if text is not None:
            return ok_text(redact.text(text))
    return absent("neither dpkg's status nor a versionlock list")


def upgrades(context: Context) -> Source:
    """The files that turn unattended upgrades on, by absolute path."""
    texts: dict[str, str] = {}
    places = (("/etc/apt/apt.conf.d", "*"), ("/etc/dnf", "automatic.conf"), ("/usr/share/dnf5/dnf5-plugins", "automatic.conf"))
    for base, pattern in places:
        source = read_files(context.path(base), (pattern,), 1 << 16)
        for name, text in (source.data or {}).items():
            if "dnf" in base or re.search(r"unattended|APT::Periodic", text, re.IGNORECASE):
                texts[f"{base}/{name}"] = redact.text(text)
    return ok(texts) if texts else absent("no file in /etc/apt/apt.conf.d names unattended upgrades, no /etc/dnf/automatic.conf")


def dkms(_context: Context) -> Source:
    """`dkms status`."""
    return command.source(["dkms", "status"], 10)


def modprobe(context: Context) -> Source:
    """The lines of modprobe's files that blacklist, alias, install or set NVIDIA's options, by absolute path."""
    texts: dict[str, str] = {}
    for base in ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"):
        folder = context.path(base)
        if base == "/lib/modprobe.d" and folder.resolve() == context.path("/usr/lib/modprobe.d").resolve():
            continue
        for name, text in (read_files(folder, ("*.conf",), 1 << 16).data or {}).items():
            lines = [
                line for line in text.splitlines() if re.match(r"\s*(blacklist|alias|install|softdep|options\s+nvidia)\b", line)
            ]
            if lines:
                texts[f"{base}/{name}"] = redact.text("\n".join(lines))
    return ok(texts) if texts else absent("no such lines in modprobe's folders")
