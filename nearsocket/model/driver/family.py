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

from nearsocket.model.driver import names
from nearsocket.model.host import Package
from nearsocket.model.verdicts import driverversions

_PIN = re.compile(r"nvidia-driver-pinning-(\d[\d.]*)\Z")
#: dpkg's second letter of a package that is neither installed whole nor gone.
_HALF = frozenset("UFHWt")


@dataclass(frozen=True)
class Family:
    """The installed driver. `version`: what its core packages agree on, None where there are none or they differ.

    `members`: the packages of that version; `split`: core packages of another one; `prebuilt`: modules that the distribution
    builds; `pins`: versions or branches that pinning packages hold the repository to; `half`: left half installed by dpkg;
    `beside`: of another version by right, and changed along where apt says so (tools, and what a change of branch left behind).
    """

    version: Optional[str]
    members: tuple[Package, ...] = ()
    split: tuple[Package, ...] = ()
    prebuilt: tuple[Package, ...] = ()
    pins: tuple[str, ...] = ()
    half: tuple[Package, ...] = ()
    beside: tuple[Package, ...] = ()

    @property
    def named(self) -> tuple[Package, ...]:
        """The members that a transaction names; those with the version in their name follow as dependencies."""
        return tuple(package for package in self.members if not names.has_version(package.name))

    @property
    def dkms(self) -> Optional[Package]:
        """The package that DKMS builds the module from, None where the module comes built."""
        return next((package for package in self.members if names.is_dkms(package.name)), None)

    @property
    def fabric_manager(self) -> Optional[Package]:
        """Fabric manager's package, which has to be of the driver's very version."""
        return next((package for package in (*self.members, *self.split) if names.is_fabric_manager(package.name)), None)

    @property
    def names(self) -> frozenset[str]:
        """Every package that a change of the driver may change."""
        return frozenset(package.name for package in (*self.members, *self.split, *self.prebuilt, *self.beside))


def of(packages: Iterable[Package]) -> Family:
    """The family among these packages, as dpkg lists them."""
    every = tuple(sorted(packages, key=lambda package: package.name))
    half = tuple(package for package in every if package.status[1:2] in _HALF)
    here = [package for package in every if package.status[1:2] == "i" or package in half]
    carriers = [(package, version) for package in here for version in (_version(package),) if version]
    left = names.replaced({package.name: version for package, version in carriers if package not in half})
    core = {version for package, version in carriers if driverversions.is_driver(package.name) and package.name not in left}
    version = next(iter(core)) if len(core) == 1 else None
    members = tuple(package for package, found in carriers if found == version)
    split = tuple(
        package
        for package, found in carriers
        if found != version
        and package.name not in left
        and (driverversions.is_driver(package.name) or names.is_fabric(package.name))
    )
    prebuilt = tuple(package for package in here if names.is_prebuilt(package.name))
    pins = tuple(match[1] for package in here for match in (_PIN.match(package.name),) if match)
    beside = tuple(
        package for package in here if package not in members and (package.name in left or names.goes_along(package.name))
    )
    return Family(version, members, split, prebuilt, pins, half, beside)


def _version(package: Package) -> Optional[str]:
    """The driver's version in a package that may carry it."""
    return driverversions.package_version(package) if names.carries(package.name) else None


def comes_along(name: str) -> bool:
    """Whether it is a part with the driver's version in its name: such come and go as dependencies of the others."""
    return names.has_version(name) and names.carries(name)
