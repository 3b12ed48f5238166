"""The stand-in driver as packages for the guest's kernel, built once and kept in the lab's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import tempfile
import time
from pathlib import Path

from lab import mirror, tools
from lab.children import reason, stream
from lab.errors import LabError
from lab.folders import cache_folder, locked, make_folder, need_space, remove_tree
from lab.image import Image
from lab.say import say

#: The version that a machine is equipped with, and the newer one that its package repository offers.
VERSION, NEWER = "580.95.05", "580.105.08"
_MODULE = ("module/nvidia.c", "module/Makefile")
SOURCES = ("build.sh", "nvml.c", "cuda.c", "nvidia_smi.py", *_MODULE)
#: Room that the throw-away root takes at its peak, in MiB.
NEEDED_MIB = 1200


#: What NVIDIA's packages ship beside the sources, for DKMS to build the module at an installation and at each new kernel.
DKMS = """# stand-in
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="{version}"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
MAKE[0]="make -C ${{kernel_source_dir}} M=${{dkms_tree}}/nvidia/{version}/build STANDIN_VERSION={version} modules"
"""


def dkms_sources(version: str) -> list[tuple[str, bytes, int]]:
    """The module's sources as a DKMS package lays them, under /usr/src: path, content, mode."""
    folder = f"/usr/src/nvidia-{version}"
    files = [(f"{folder}/{Path(name).name}", (Path(__file__).parent / name).read_bytes(), 0o644) for name in _MODULE]
    return [*files, (f"{folder}/dkms.conf", DKMS.format(version=version).encode(), 0o644)]


def kernel_release(image: bytes) -> str:
    """The release of a bzImage: its header has the text's place at 0x20e (Documentation/arch/x86/boot.rst). LabError for others."""
    if image[0x202:0x206] != b"HdrS":
        raise LabError("expected an x86 kernel image, found something else")
    (place,) = struct.unpack_from("<H", image, 0x20E)
    return image[0x200 + place : 0x200 + place + 256].split(b"\0")[0].split(b" ")[0].decode()


def digest(release: str, suite: str) -> str:
    """What names the packages in the cache: their sources, the kernel and the Debian they are built on."""
    seen = hashlib.sha256(f"{release} {suite} {VERSION} {NEWER}".encode())
    for name in SOURCES:
        seen.update((Path(__file__).parent / name).read_bytes())
    return seen.hexdigest()[:12]


def ensure(image: Image, suite: str) -> Path:
    """The folder with the packages and their index for the image's kernel, built now where the cache lacks it."""
    release = kernel_release(image.kernel.read_bytes()[: 1 << 16])
    folder = cache_folder() / f"driver-{digest(release, suite)}"
    if folder.is_dir():
        return folder
    tools.need((*tools.TO_BUILD, *(() if tools.is_root() else tools.TO_BUILD_WITHOUT_ROOT)))
    cache = make_folder(cache_folder(), "NEARSOCKET_LAB_CACHE")
    with locked(cache / "driver.lock", "driver"):
        if folder.is_dir():
            return folder
        need_space(cache, NEEDED_MIB, "NEARSOCKET_LAB_CACHE")
        _build(release, suite, cache, folder)
    return folder


def _build(release: str, suite: str, cache: Path, folder: Path) -> None:
    started = time.monotonic()
    say("driver", f"building the stand-in driver {VERSION} and {NEWER} for kernel {release}, once")
    work = Path(tempfile.mkdtemp(prefix="build-driver-", dir=cache))
    try:
        work.chmod(0o711)
        settings = work / "apt.conf"
        descriptor = os.open(settings, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write('APT::Install-Recommends "false";\nAcquire::Languages "none";\n' + mirror.settings())
        sources = work / "sources"
        for name in SOURCES:
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(__file__).parent / name, sources / name)
        code, tail = stream(
            _command(release, suite, settings, sources, work), lambda _line: None, env={**os.environ, "TMPDIR": str(work)}
        )
        if code:
            raise LabError(
                f"expected the stand-in driver to build for kernel {release}, found: {reason(tail)}",
                "where the mirror has a newer kernel by now: nearsocket lab image forget, then up again",
            )
        (work / "repo").rename(folder)
    finally:
        remove_tree(work)
    say("driver", f"ready after {time.monotonic() - started:.0f} s")


def _command(release: str, suite: str, settings: Path, sources: Path, work: Path) -> list[str]:
    """mmdebstrap makes the root, runs the build in it, copies the packages out and keeps nothing else."""
    mode = "root" if tools.is_root() else "unshare"
    contained = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"] if mode == "root" else []
    versions = f"{VERSION} {NEWER}"
    return [
        *contained,
        "mmdebstrap",
        f"--mode={mode}",
        "--variant=minbase",
        "--format=null",
        f"--aptopt={settings}",
        f"--include=gcc,libc6-dev,linux-headers-{release},make",
        f"--customize-hook=copy-in {sources} /tmp",
        f'--customize-hook=chroot "$1" sh /tmp/sources/build.sh {release} /tmp/sources /tmp/repo {versions}',
        f"--customize-hook=copy-out /tmp/repo {work}",
        suite,
        "/dev/null",
        *([site] if (site := mirror.mirror()) else []),
    ]
