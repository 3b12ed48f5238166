"""KVM or emulation: decided by a short real boot, since /dev/kvm can be there and still not carry a guest."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from lab.errors import LabError
from lab.folders import cache_folder
from lab.image import Image
from lab.qemu import frame_arguments
from lab.say import say
from lab.tools import find

#: What the first program of the guest prints when it ran.
WORKS = "LAB-PROBE-WORKS"

#: A working KVM takes about a second for the probe.
PROBE_S = 20.0


def choose(image: Image) -> tuple[str, str]:
    """The accelerator (`kvm` or `tcg`) and why; NEARSOCKET_LAB_ACCEL decides where it is set."""
    named = os.environ.get("NEARSOCKET_LAB_ACCEL", "auto")
    if named in ("kvm", "tcg"):
        return named, "NEARSOCKET_LAB_ACCEL says so"
    if named != "auto":
        raise LabError(f"expected NEARSOCKET_LAB_ACCEL to be auto, kvm or tcg, found {named!r}")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg", "/dev/kvm cannot be opened" if Path("/dev/kvm").exists() else "there is no /dev/kvm"
    known = _remembered()
    if known is None:
        say("accelerator", "trying KVM with a short boot")
        known = probe(image)
        remember(known)
    return ("kvm", "a short boot under it works") if known else ("tcg", "/dev/kvm is there, but a guest does not run under it")


def probe(image: Image) -> bool:
    """Whether a guest's first program runs to its end under KVM."""
    with tempfile.TemporaryDirectory(prefix="probe-", dir=image.folder.parent) as folder:
        argv = [
            *frame_arguments("kvm"),
            *("-m", "256M", "-smp", "2", "-no-reboot", "-serial", "file:console.log"),
            *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
            *("-append", "console=ttyS0 quiet panic=-1 lab.probe"),
        ]
        try:
            subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S, check=False)
        except subprocess.TimeoutExpired:
            return False
        console = Path(folder) / "console.log"
        return console.exists() and WORKS in console.read_text(encoding="utf-8", errors="replace")


def _key() -> str:
    binary = Path(find("qemu-system-x86_64") or "/nonexistent")
    stamp = binary.stat().st_mtime_ns if binary.exists() else 0
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='utf-8').strip()} {binary} {stamp}"


def _remembered() -> bool | None:
    try:
        data = json.loads((cache_folder() / "accel.json").read_text(encoding="utf-8"))
        return bool(data["kvm"]) if data["key"] == _key() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(works: bool) -> None:
    """Keep the answer until this host boots anew or its emulator changes."""
    path = cache_folder() / "accel.json"
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        fresh.write_text(json.dumps({"key": _key(), "kvm": works}), encoding="utf-8")
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)  # a cache that cannot be written (full disk): the next command probes again
