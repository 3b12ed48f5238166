"""What the names of NVIDIA's packages tell: which carry the driver's version, their branch, what they are called at another one.

A package of the second architecture keeps it (`libnvidia-compute-580:i386`): it is another package than the first one's. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

#: What 32-bit programs need beside the driver: the one second architecture that NVIDIA makes libraries for.
COMPANION = ":i386"
#: How names begin that may carry the driver's version. Debian: its package index. Ubuntu, NVIDIA: public documentation, not run.
BEGINNINGS = (
    *("nvidia-", "libnvidia-", "libcuda1", "libcudadebugger", "libnvcuvid", "libnvoptix", "libnvsdm", "cuda-drivers"),
    *("firmware-nvidia-", "xserver-xorg-video-nvidia", "libxnvctrl", "nvlink5"),
    *("libgl-nvidia", "libgl1-nvidia", "libglx-nvidia", "libegl-nvidia", "libgles-nvidia", "libgles1-nvidia", "libgles2-nvidia"),
)
#: How names begin of what else goes with the driver: the distribution's built modules and their parts, NVLink 5's subnet manager.
BESIDE = ("linux-modules-nvidia-", "linux-objects-nvidia-", "linux-signatures-nvidia-", "nvlsm")
#: NVIDIA's names with a life of their own: toolkit, CUDA's libraries, switches that pin a branch, and Debian's helpers.
_STRANGER = re.compile(
    r"((lib)?nvidia-container|nvidia-docker"
    r"|nvidia-(cuda(?!-mps)|cudnn|fs|gds|nsight|vaapi|prime|detect|support|installer|legacy-check)|nvidia-driver-pinning)"
)
#: Ubuntu's modules for one kernel or flavour, built and signed by the distribution: their version is the kernel's.
_PREBUILT = re.compile(r"linux-(modules|objects|signatures)-nvidia-\d")
#: The one of them that brings the module's file to its place; the others are its parts.
_MODULE = "linux-modules-nvidia-"
#: Its name has the kernel's numbers and no branch, and an ABI may have three digits.
_SIGNATURES = "linux-signatures-"
_BRANCH = re.compile(r"-(\d{3,})(?=-|\Z)")
#: Parts whose name ends with the version itself come and go as dependencies of the others.
_VERSION_IN_NAME = re.compile(r"-\d{3,}\.\d+(\.\d+)?\Z")
_FABRIC = re.compile(r"(nvidia-fabricmanager(-dev)?|libnvidia-nscq|nvidia-imex)(-|\Z)")
_FABRIC_MANAGER = re.compile(r"nvidia-fabricmanager(-\d{3,})?\Z")
_DKMS = re.compile(r"nvidia-(tesla-\d+-)?(open-)?(kernel-(open-)?)?dkms(-|\Z)")
#: Tools of any version beside any driver. Debian builds each from a source of its own, at its own pace.
_HELPER = re.compile(r"(nvidia-(tesla-\d+-)?(persistenced|settings|modprobe|xconfig)|libxnvctrl0)(-\d{3,})?\Z")
#: Numbered by date; it comes with fabric manager.
_ALONG = re.compile(r"nvlsm(-|\Z)")
#: From here on NVIDIA's repository names packages without a branch.
_UNBRANCHED = 590


def plain(name: str) -> str:
    """The name without an architecture."""
    return name[: -len(COMPANION)] if name.endswith(COMPANION) else name


def carries(name: str) -> bool:
    """Whether a package of that name may carry the driver's version."""
    return bool(name.startswith(BEGINNINGS) and not _STRANGER.match(name) and not _PREBUILT.match(name))


def is_prebuilt(name: str) -> bool:
    """Whether it is one of the distribution's built modules, or a part of one."""
    return _PREBUILT.match(name) is not None


def is_module(name: str) -> bool:
    """Whether it puts a built module where the kernel finds it: signatures and objects alone are none."""
    return name.startswith(_MODULE)


def is_dkms(name: str) -> bool:
    """Whether DKMS builds the module from it."""
    return _DKMS.match(name) is not None


def is_fabric(name: str) -> bool:
    """Whether it is a part of NVSwitch's software, which has to be of the driver's very version."""
    return _FABRIC.match(name) is not None


def is_fabric_manager(name: str) -> bool:
    """Whether it is fabric manager itself: not its headers, and no package that only asks for it."""
    return _FABRIC_MANAGER.match(name) is not None


def is_helper(name: str) -> bool:
    """Whether it is a tool that need not be of the driver's version, though it may happen to be."""
    return _HELPER.match(plain(name)) is not None


def goes_along(name: str) -> bool:
    """Whether a change of the driver may change it whatever its version: helpers, and the subnet manager of NVLink 5."""
    return is_helper(name) or _ALONG.match(name) is not None


def has_version(name: str) -> bool:
    """Whether the name ends with a version."""
    return _VERSION_IN_NAME.search(plain(name)) is not None


def branch(name: str) -> Optional[str]:
    """The branch in a package's name: `580` of `nvidia-driver-580-server-open`; None where it has none."""
    found = None if name.startswith(_SIGNATURES) else _BRANCH.search(plain(name))
    return found[1] if found else None


def major(version: str) -> str:
    """The branch that a driver's version is of."""
    return version.partition(".")[0]


def renamed(name: str, version: str, before: Optional[str] = None) -> tuple[str, ...]:
    """What a member may be called at that version, the likeliest first. `before`: the version that is installed.

    The same name; where it has a branch and the version is of another one, with that branch; and without any, as NVIDIA's
    repository for Ubuntu names them from 590 on. Back from there the branch comes before `-open`, or last.
    """
    own, series, base = branch(name), major(version), plain(name)
    end = name[len(base) :]
    if own is not None and own != series:
        return tuple(_BRANCH.sub(new, base, count=1) + end for new in (f"-{series}", ""))
    if own is None and before is not None and _number(series) < _UNBRANCHED <= _number(major(before)) and not is_prebuilt(name):
        last = f"{base}-{series}{end}"
        opened = f"{base[: -len('-open')]}-{series}-open{end}" if base.endswith("-open") else last
        return tuple(dict.fromkeys((name, opened, last)))
    return (name,)


def install_fabric_manager(installed: Optional[str], version: str) -> str:
    """The command that brings fabric manager of that version, where that package of it is installed (None: none is): from 580 on
    NVIDIA's repository has no branch in its name, and Ubuntu's has."""
    unknown = (f"nvidia-fabricmanager-{major(version)}", "nvidia-fabricmanager")
    called = renamed(installed, version) if installed else unknown
    return " || ".join(f"sudo apt-get install {name}={version}-*" for name in called)


def replaced(versions: Mapping[str, str]) -> frozenset[str]:
    """Of whole packages (name to the driver's version) those that a later branch's package of the same role stands in for.

    What a change of branch leaves behind: an empty package of the old branch, which only asks for the new one's. Packages that do
    something shut each other out, so where a change stopped half-way a role is there once, in one branch or the other.
    """
    later = sorted(set(versions.values()))
    return frozenset(
        name
        for name, version in versions.items()
        if branch(name) is not None
        and any(
            _number(major(new)) > _number(major(version))
            and any(versions.get(other) == new for other in renamed(name, new) if other != name)
            for new in later
        )
    )


def _number(series: str) -> int:
    return int(series) if series.isdecimal() else 0
