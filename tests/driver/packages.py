"""Installed drivers as dpkg lists them. Debian's names and relations are its package index's; Ubuntu's and NVIDIA's are public
documentation's, and no such machine was read.
"""

from __future__ import annotations

from nearsocket.model.host import Package
from nearsocket.model.parsers.packages import packages


def listed(version: str, *names: str, status: str = "ii ") -> str:
    """dpkg-query's lines for these names at one version."""
    return "".join(f"{name}\t{version}\t{status}\n" for name in names)


OTHERS = (
    listed("1.18.0-1", "nvidia-container-toolkit", "libnvidia-container1:amd64", "nvidia-container-toolkit-base")
    + listed("13.0.85-1", "cuda-cccl-13-0", "cuda-nvcc-13-0")
    + listed("580.95.05-0ubuntu1", "cuda-compat-13-0")
    + listed("2.28.9-1+cuda13.0", "libnccl2")
)
DEBIAN = OTHERS + listed(
    "535.247.01-1~deb12u1",
    *("nvidia-driver", "nvidia-driver-libs:amd64", "nvidia-driver-bin", "nvidia-kernel-dkms", "nvidia-kernel-support"),
    *("nvidia-alternative", "nvidia-smi", "libcuda1:amd64", "libnvidia-ml1:amd64", "libnvidia-cfg1:amd64"),
    *("libnvidia-ptxjitcompiler1:amd64", "firmware-nvidia-gsp", "xserver-xorg-video-nvidia", "libgl1-nvidia-glvnd-glx:amd64"),
    *("libnvoptix1:amd64", "nvidia-cuda-mps"),
)
DEBIAN += listed("20220217+3~deb12u1", "nvidia-installer-cleanup", "nvidia-support")
DEBIAN_TESLA = OTHERS + listed(
    "535.216.03-3~deb12u1",
    *("nvidia-tesla-535-driver", "nvidia-tesla-535-kernel-dkms", "nvidia-tesla-535-smi", "libnvidia-tesla-535-cuda1:amd64"),
    *("libnvidia-tesla-535-ml1:amd64", "firmware-nvidia-tesla-535-gsp"),
)
_SERVER = ("nvidia-driver", "nvidia-utils", "nvidia-compute-utils", "nvidia-kernel-common", "libnvidia-compute", "libnvidia-cfg1")
UBUNTU_SERVER_OPEN = (
    OTHERS
    + listed("580.95.05-0ubuntu0.24.04.2", *(f"{name}-580-server" for name in _SERVER[1:]), "nvidia-driver-580-server-open")
    + listed("580.95.05-0ubuntu0.24.04.2", "nvidia-kernel-source-580-server-open", "nvidia-firmware-580-server-580.95.05")
    + listed(
        "6.8.0-87.88+1", "linux-modules-nvidia-580-server-open-6.8.0-87-generic", "linux-modules-nvidia-580-server-open-generic"
    )
)
UBUNTU_DKMS = OTHERS + listed(
    "580.95.05-0ubuntu1",
    *(
        "nvidia-driver-580-open",
        "nvidia-dkms-580-open",
        "nvidia-utils-580",
        "libnvidia-compute-580:amd64",
        "nvidia-kernel-common-580",
    ),
)
NVIDIA = OTHERS + listed(
    "590.48.01-1",
    *("nvidia-open", "nvidia-driver", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-kernel-support", "libcuda1:amd64"),
    *("libnvidia-ml1:amd64", "nvidia-persistenced", "nvidia-modprobe", "nvidia-fabricmanager", "libnvidia-nscq"),
)
STANDIN = listed("580.95.05-0standin1", "nvidia-kernel-standin", "libnvidia-compute-standin", "nvidia-utils-standin", status="hi ")


def of(text: str) -> tuple[Package, ...]:
    return packages(text)
