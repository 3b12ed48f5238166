"""Building an image: packages into a folder (mmdebstrap), the folder into a file system (mke2fs), and the first initrd."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from lab import cpio, mirror, tools
from lab.children import is_full, reason, stream
from lab.errors import LabError
from lab.recipe import Recipe
from lab.say import say

#: mmdebstrap's steps as a person reads them.
STEPS = {
    "running apt-get update": "reading the package lists",
    "downloading packages": "downloading packages",
    "extracting archives": "unpacking the base",
    "installing essential": "installing the base",
    "installing remaining": "installing the rest (the longest step)",
    "cleaning package lists": "cleaning up",
}


def build(recipe: Recipe, work: Path) -> None:
    """Make `disk.raw`, `vmlinuz` and `initrd` in the folder `work`, which is empty and on the image's file system.

    As root mmdebstrap works in namespaces of its own, so that an interrupted build leaves no mount; else in a user namespace.
    """
    root = work / "root"
    try:
        if tools.is_root():
            _packages(recipe, work, root, "root")
        else:
            _packages(recipe, work, work / "root.tar", "unshare")
            root.mkdir()
            # Device nodes cannot be made in a user namespace; the guest's kernel makes its own.
            unpack = ["tar", "--extract", "--file", str(work / "root.tar"), "--directory", str(root), "--exclude=./dev/*"]
            _run("unpacking", [*_as_root(), *unpack])
            (work / "root.tar").unlink()
        _kernel(recipe, root, work)
        say("image", "making the file system")
        _file_system(recipe, root, work / "disk.raw")
    finally:
        clear(work)


def clear(work: Path) -> None:
    """Remove the unpacked packages of a build, whose files may belong to users of a namespace."""
    if (work / "root").exists():
        subprocess.run([*_as_root(), "rm", "-rf", "--one-file-system", str(work / "root")], check=False, capture_output=True)


def _as_root() -> list[str]:
    return [] if tools.is_root() else ["unshare", "--map-root-user", "--map-auto"]


def _run(
    step: str, argv: Sequence[str], on_line: Callable[[str], None] = lambda _line: None, env: dict[str, str] | None = None
) -> None:
    code, tail = stream(argv, on_line, env=env)
    if code:
        raise LabError(f"expected {step} to succeed, found: {reason(tail)}", _hint(reason(tail)))


def _hint(line: str) -> str:
    if is_full(line):
        return "free some space, or set NEARSOCKET_LAB_CACHE to a folder with room"
    if "subuid" in line or "newuidmap" in line or "unshare" in line:
        return "give your user ranges: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 NAME"
    return "check that the Debian mirror can be reached; NEARSOCKET_LAB_MIRROR names another"


def _packages(recipe: Recipe, work: Path, target: Path, mode: str) -> None:
    settings = work / "apt.conf"
    descriptor = os.open(settings, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write('APT::Install-Recommends "false";\nAcquire::Languages "none";\n' + mirror.settings())
    contained = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"] if mode == "root" else []
    argv = [
        *contained,
        "mmdebstrap",
        f"--mode={mode}",
        "--variant=minbase",
        f"--format={'directory' if mode == 'root' else 'tar'}",
        f"--aptopt={settings}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.excluded),
        f"--include={','.join(recipe.packages)}",
        f"--customize-hook={recipe.customize}",  # the text, not the file: a user namespace may not reach the file
        recipe.suite,
        str(target),
        *([site] if (site := mirror.mirror()) else []),
    ]

    def tell(line: str) -> None:
        for known, words in STEPS.items():
            if line.startswith(f"I: {known}"):
                say("image", words)

    # INITRD=No: the kernel package's hook would build a large initrd for hardware that no lab machine has.
    env = {**os.environ, "INITRD": "No", "LC_ALL": "C.UTF-8"}
    if mode == "root":
        env["TMPDIR"] = str(work)  # in a user namespace mmdebstrap is another user, who may not reach our cache
    _run("the package installation", argv, tell, env)
    settings.unlink()


def _kernel(recipe: Recipe, root: Path, work: Path) -> None:
    """Copy the kernel out and make the initrd: a static busybox, our init, the disk's modules."""
    kernels = sorted((root / "boot").glob("vmlinuz-*"))
    if not kernels:
        raise LabError("expected a kernel in the image, found none", "the recipe's package list lacks a linux-image package")
    version = kernels[-1].name.removeprefix("vmlinuz-")
    shutil.copyfile(kernels[-1], work / "vmlinuz")
    entries = [
        *(cpio.folder_entry(name) for name in ("proc", "sys", "dev", "root", "lay")),
        cpio.file_entry("init", recipe.first_program.encode(), 0o755),
        cpio.file_entry("bin/busybox", (root / "usr/bin/busybox").read_bytes(), 0o755),
    ]
    for module in recipe.modules:
        found = sorted((root / "usr/lib/modules" / version).rglob(f"{module}.ko*"))
        if not found:
            raise LabError(f"expected the module {module} in kernel {version}, found none", "another kernel package may have it")
        data = found[0].read_bytes()
        entries.append(cpio.file_entry(f"modules/{module}.ko", lzma.decompress(data) if found[0].suffix == ".xz" else data))
    (work / "initrd").write_bytes(cpio.archive(entries))


def _file_system(recipe: Recipe, root: Path, disk: Path) -> None:
    with disk.open("wb") as out:
        out.truncate(recipe.disk_mib << 20)
    mke2fs = tools.find("mke2fs") or "mke2fs"
    options = "assume_storage_prezeroed=1,hash_seed=00000000-0000-0000-0000-000000000001"
    argv = [*_as_root(), mke2fs, "-q", "-t", "ext4", "-m", "0", "-E", options, "-L", "lab", "-d", str(root), str(disk)]
    _run("the file system's making", argv)
