"""The host's programs that the lab needs, and the one line that says which package brings a missing one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import ToolMissing
from lab.say import say

#: System folders that an ordinary user's PATH may lack.
SYSTEM_PATHS = ("/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Tool:
    """A program by name (or a file by its path) and the Debian package that has it."""

    name: str
    package: str


TO_RUN = (
    Tool("qemu-system-x86_64", "qemu-system-x86"),
    Tool("qemu-img", "qemu-utils"),
    Tool("ssh", "openssh-client"),
    Tool("ssh-keygen", "openssh-client"),
)
TO_BUILD = (
    Tool("mmdebstrap", "mmdebstrap"),
    Tool("mke2fs", "e2fsprogs"),
    Tool("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
)
TO_BUILD_WITHOUT_ROOT = (Tool("newuidmap", "uidmap"), Tool("unshare", "util-linux"))


def find(name: str) -> str | None:
    """Where a program is: PATH first, then the system's folders (mke2fs is there). PATH empty of it in both: None."""
    if name.startswith("/"):
        return name if Path(name).exists() else None
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(name) or (shutil.which(name, path=os.pathsep.join(SYSTEM_PATHS)) if "/usr/bin" in path else None)


def missing(tools: Sequence[Tool]) -> list[Tool]:
    """The tools that are not here."""
    return [tool for tool in tools if find(tool.name) is None]


def is_root() -> bool:
    """Whether this process may install packages and build without user namespaces."""
    return os.geteuid() == 0


def need(tools: Sequence[Tool]) -> None:
    """Have the tools: as root on a Debian system the missing packages are installed; else ToolMissing says which and how."""
    lacking = missing(tools)
    if not lacking:
        return
    packages = sorted({tool.package for tool in lacking})
    names = ", ".join(tool.name for tool in lacking)
    command = f"apt-get install {' '.join(packages)}"
    if is_root() and find("apt-get"):
        say("host", f"installing {' '.join(packages)}")
        _install(packages)
        lacking = missing(tools)
        if not lacking:
            return
        names = ", ".join(tool.name for tool in lacking)
        raise ToolMissing(f"expected {names} in PATH, found none, although {' '.join(packages)} installed", "look at PATH")
    raise ToolMissing(f"expected {names}, found none", f"install it: {'' if is_root() else 'sudo '}{command} (Debian, Ubuntu)")


def _install(packages: Sequence[str]) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]):
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            raise ToolMissing(f"expected `{' '.join(argv)}` to succeed, found: {said[-1]}", "install the packages by hand")
