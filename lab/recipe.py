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

#: A container host of the Debian before: systemd 252, runc 1.1.5, Docker 20.10.
OLDER = ("apparmor", "docker.io", "iptables")

PROFILES = {"small": SMALL, "full": (*SMALL, *CONTAINERS), "dkms": (*SMALL, *BUILDERS), "older": (*SMALL, *OLDER)}

#: Modules of the disk and the network in the order of loading; udev loads everything else.
FIRST_MODULES = ("failover", "net_failover", "virtio_blk", "virtio_net")
#: What they rest on where a kernel has that as modules too.
BELOW_FIRST = {"bookworm": ("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci")}

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
    def modules(self) -> tuple[str, ...]:
        """The modules of the first initrd, in the order of loading."""
        return (*BELOW_FIRST.get(self.suite, ()), *FIRST_MODULES)

    @property
    def first_program(self) -> str:
        """The guest's first program, which loads these modules."""
        return self.init.replace(" ".join(FIRST_MODULES), " ".join(self.modules))

    @property
    def digest(self) -> str:
        """The recipe's name in the cache: twelve hexadecimal digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


def recipe(profile: str) -> Recipe:
    """The recipe of a profile: `full`, `small` without the container engines, `dkms` with a compiler in their place, `older`.

    NEARSOCKET_LAB_SUITE names another Debian for all but `older`.
    """
    if profile not in PROFILES:
        raise LabError(f"expected an image profile of {', '.join(PROFILES)}, found {profile!r}")
    return Recipe(
        profile=profile,
        suite="bookworm" if profile == "older" else os.environ.get("NEARSOCKET_LAB_SUITE", "trixie"),
        packages=tuple(sorted(PROFILES[profile])),
        disk_mib=10240,
        customize=(GUEST / "customize.sh").read_text(encoding="utf-8"),
        init=(GUEST / "init").read_text(encoding="utf-8"),
    )
