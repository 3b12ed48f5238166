"""What an image is made of; the hash of it names the image in the cache."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.errors import LabError

GUEST = Path(__file__).parent / "guest"

#: What every guest has: a cloud kernel, systemd, SSH, Python and the tools that an audit or a person at the shell looks for.
SMALL = (
    "busybox-static",
    "dbus",
    "iproute2",
    "kmod",
    "linux-image-cloud-amd64",
    "numactl",
    "openssh-server",
    "pciutils",
    "procps",
    "python3",
    "sudo",
    "systemd-sysv",
    "udev",
)
#: What container hosts have on top. Docker needs apparmor's parser where recommended packages are left out, podman's --init needs
#: catatonit.
#: The registry starts by hand: an image has a digest only where it came from one.
CONTAINERS = ("apparmor", "catatonit", "crun", "docker-cli", "docker-registry", "docker.io", "iptables", "podman")

#: What builds a kernel module on the machine itself, as a server with DKMS does at every kernel upgrade.
BUILDERS = ("dkms", "gcc", "libc6-dev", "linux-headers-cloud-amd64", "make")

PROFILES = {"small": SMALL, "full": (*SMALL, *CONTAINERS), "dkms": (*SMALL, *BUILDERS)}

#: What the guest does not need of a package.
EXCLUDED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*", "/usr/share/bash-completion/*")

#: Bump where the way an image is built changes without any file of it changing.
BUILD_VERSION = 1


@dataclass(frozen=True)
class Recipe:
    """All that decides an image's content: the same recipe is the same image."""

    profile: str
    suite: str
    packages: tuple[str, ...]
    disk_mib: int
    customize: str
    init: str
    excluded: tuple[str, ...] = EXCLUDED
    build_version: int = BUILD_VERSION

    @property
    def digest(self) -> str:
        """The recipe's name in the cache: twelve hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


def recipe(profile: str) -> Recipe:
    """The recipe of a profile: `full`, `small` without the container engines, `dkms` with a compiler in their place.

    NEARSOCKET_LAB_SUITE names another Debian.
    """
    if profile not in PROFILES:
        raise LabError(f"expected an image profile of {', '.join(PROFILES)}, found {profile!r}")
    return Recipe(
        profile=profile,
        suite=os.environ.get("NEARSOCKET_LAB_SUITE", "trixie"),
        packages=tuple(sorted(PROFILES[profile])),
        disk_mib=10240,
        customize=(GUEST / "customize.sh").read_text(encoding="utf-8"),
        init=(GUEST / "init").read_text(encoding="utf-8"),
    )
