"""Which installed packages are one driver, by their names and the version that they share.

Names differ: Debian's (`nvidia-kernel-dkms`, `libcuda1`), Ubuntu's with a branch in them (`nvidia-driver-580-server-open`,
`linux-modules-nvidia-580-server-generic`), NVIDIA's own repository's (`nvidia-open`, `cuda-drivers`, on Ubuntu too without a
branch from 590 on) and the lab's stand-ins. What holds them together is the driver's version, so that decides, among NVIDIA's
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from nearsocket.model.host import Package
from nearsocket.model.verdicts import driverversions

#: Packages that may carry the driver's version. Debian: its package index. Ubuntu, NVIDIA: public documentation, not run.
_NAME = re.compile(
    r"(nvidia-|libnvidia-|libcuda1\b|libcudadebugger|libnvcuvid|cuda-drivers|firmware-nvidia-|xserver-xorg-video-nvidia|libnvsdm"
    r"|libxnvctrl|lib(gl|gl1|glx|egl|gles|gles1|gles2)-nvidia)"
)
#: NVIDIA's names with a life of their own: toolkit, CUDA's libraries, switches that pin a branch, and Debian's helpers.
_NOT = re.compile(
    r"((lib)?nvidia-container|nvidia-docker|nvidia-(cuda|cudnn|fs|gds|nsight|vaapi|prime|detect|support|installer|legacy-check)"
    r"|nvidia-driver-pinning)"
)
#: Ubuntu's modules for one kernel or flavour, built and signed by the distribution: their version is the kernel's.
_PREBUILT = re.compile(r"linux-(modules|objects|signatures)-nvidia-\d")
_PIN = re.compile(r"nvidia-driver-pinning-(\d[\d.]*)\Z")
_BRANCH = re.compile(r"-(\d{3,})(?=-|\Z)")
#: Parts whose name ends with the version itself come and go as dependencies of the others.
_VERSION_IN_NAME = re.compile(r"-\d{3,}\.\d+(\.\d+)?\Z")
_FABRIC = re.compile(r"(nvidia-fabricmanager(-dev)?|libnvidia-nscq|nvlsm|nvidia-imex)(-|\Z)")
_DKMS = re.compile(r"nvidia-(open-)?(kernel-(open-)?)?dkms(-|\Z)|nvidia-dkms(-|\Z)")
#: dpkg's second letter of a package that is neither installed whole nor gone.
_HALF = frozenset("UFHWt")


@dataclass(frozen=True)
class Family:
    """The installed driver. `version`: what its core packages agree on, None where there are none or they differ.

    `members`: the packages of that version; `split`: core packages of another one; `prebuilt`: modules that the distribution
    builds; `pins`: versions or branches that pinning packages hold the repository to; `half`: left half installed by dpkg.
    """

    version: Optional[str]
    members: tuple[Package, ...] = ()
    split: tuple[Package, ...] = ()
    prebuilt: tuple[Package, ...] = ()
    pins: tuple[str, ...] = ()
    half: tuple[Package, ...] = ()

    @property
    def named(self) -> tuple[Package, ...]:
        """The members that a transaction names; those with the version in their name follow as dependencies."""
        return tuple(package for package in self.members if not _VERSION_IN_NAME.search(package.name))

    @property
    def dkms(self) -> Optional[Package]:
        """The package that DKMS builds the module from, None where the module comes built."""
        return next((package for package in self.members if _DKMS.match(package.name)), None)

    @property
    def fabric_manager(self) -> Optional[Package]:
        """Fabric manager's package, which has to be of the driver's very version."""
        return next((package for package in (*self.members, *self.split) if _FABRIC.match(package.name)), None)

    @property
    def names(self) -> frozenset[str]:
        """Every package that a change of the driver may change."""
        return frozenset(package.name for package in (*self.members, *self.split, *self.prebuilt))


def of(packages: Iterable[Package]) -> Family:
    """The family among these packages, as dpkg lists them."""
    every = tuple(sorted(packages, key=lambda package: package.name))
    half = tuple(package for package in every if package.status[1:2] in _HALF)
    here = [package for package in every if package.status[1:2] == "i" or package in half]
    carriers = [(package, version) for package in here for version in (_version(package),) if version]
    core = {version for package, version in carriers if driverversions.is_driver(package.name)}
    version = next(iter(core)) if len(core) == 1 else None
    members = tuple(package for package, found in carriers if found == version)
    split = tuple(
        package
        for package, found in carriers
        if found != version and (driverversions.is_driver(package.name) or _FABRIC.match(package.name))
    )
    prebuilt = tuple(package for package in here if _PREBUILT.match(package.name))
    pins = tuple(match[1] for package in here for match in (_PIN.match(package.name),) if match)
    return Family(version, members, split, prebuilt, pins, half)


def _version(package: Package) -> Optional[str]:
    """The driver's version in a package that may carry it."""
    if not _NAME.match(package.name) or _NOT.match(package.name) or _PREBUILT.match(package.name):
        return None
    return driverversions.package_version(package)


def comes_along(name: str) -> bool:
    """Whether it is a part with the driver's version in its name: such come and go as dependencies of the others."""
    return bool(_VERSION_IN_NAME.search(name) and _NAME.match(name) and not _NOT.match(name))


def branch(name: str) -> Optional[str]:
    """The branch in a package's name: `580` of `nvidia-driver-580-server-open`; None where it has none."""
    found = _BRANCH.search(name)
    return found[1] if found else None


def renamed(name: str, version: str) -> tuple[str, ...]:
    """What a member may be called at that version, the likeliest first.

    The same name; where it has a branch and the version is of another one, with that branch; and without any, as NVIDIA's
    repository for Ubuntu names them from 590 on.
    """
    major, own = version.partition(".")[0], branch(name)
    if own is None or own == major:
        return (name,)
    return (_BRANCH.sub(f"-{major}", name, count=1), _BRANCH.sub("", name, count=1))
