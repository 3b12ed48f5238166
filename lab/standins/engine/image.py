"""The engine image: made in the guest from its own files, imported into Docker and podman.

Where a digest is needed it is pushed to the machine's own registry; no other one is asked.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from lab import ssh
from lab.errors import LabError
from lab.say import clean

FOLDER = Path(__file__).parent
#: The image's name in both engines.
NAME = "localhost/nearsocket-standin/sglang:0.5.10"
#: Its name and tag in the lab's registry, once `publish` has put it there.
PUBLISHED = "nearsocket-standin/sglang:0.5.10"
GUEST_FOLDER = "/opt/nearsocket-standin/engine"
_CHANGES = (
    "ENV PYTHONPATH=/opt/standin",
    "ENV PATH=/usr/bin:/bin",
    "LABEL org.opencontainers.image.description=stand-in",
    'ENTRYPOINT ["python3", "-m", "sglang.launch_server"]',
)
RUNTIMES = ("docker", "podman")


def files() -> list[tuple[str, bytes, int]]:
    """The engine's files for the guest: path, content, mode."""
    found = [(f"{GUEST_FOLDER}/sglang/{path.name}", path.read_bytes(), 0o644) for path in sorted((FOLDER / "sglang").glob("*.py"))]
    programs = {"make-image.sh": "/opt/nearsocket-standin/make-image.sh", "standin-engine": "/usr/local/bin/standin-engine"}
    return [*found, *((path, (FOLDER / name).read_bytes(), 0o755) for name, path in programs.items())]


def pack(entries: list[tuple[str, bytes, int]]) -> bytes:
    """A tar of files by absolute path."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, content, mode in entries:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def script(runtime: str) -> str:
    """The shell script that imports the image into one engine, unless it is there."""
    changes = " ".join(f"-c '{change}'" for change in _CHANGES)
    return (
        f"{runtime} image inspect {NAME} >/dev/null 2>&1 || {{ "
        f"sh /opt/nearsocket-standin/make-image.sh {GUEST_FOLDER} >/var/tmp/engine.tar; "
        f"{runtime} import {changes} /var/tmp/engine.tar {NAME} >/dev/null; }}"
    )


def load(lab: str, machine: str, runtime: str, timeout_s: float = 300.0) -> None:
    """Have the image in one engine of a machine that is equipped. LabError with the engine's own words where it refuses."""
    done = ssh.run(lab, machine, f"set -e; {script(runtime)}", timeout_s=timeout_s)
    if done.returncode:
        raise LabError(f"expected {runtime} to import the engine image, found: {clean(done.stderr or done.stdout)}")


def local(lab: str, machine: str, timeout_s: float = 600.0) -> str:
    """Have the image in podman; its reference by digest. podman has one of what it imported, Docker only of what it pulled."""
    load(lab, machine, "podman", timeout_s)
    done = ssh.run(lab, machine, f"podman image inspect --format '{{{{index .RepoDigests 0}}}}' {NAME}", timeout_s=timeout_s)
    if done.returncode:
        raise LabError(f"expected podman to name the engine image's digest, found: {clean(done.stderr or done.stdout)}")
    return done.stdout.strip()


def publish(lab: str, machine: str, runtime: str, timeout_s: float = 600.0) -> str:
    """Push the image from one engine to the machine's own registry; its reference with digest, `127.0.0.1:5000/NAME@sha256:...`.

    Loads it first where the engine lacks it. LabError with the engine's or the registry's own words where one of them refuses.
    """
    load(lab, machine, runtime, timeout_s)
    done = ssh.run(lab, machine, f"lab-push {runtime} {NAME} {PUBLISHED}", timeout_s=timeout_s)
    if done.returncode:
        raise LabError(f"expected {machine} to publish the engine image, found: {clean(done.stderr or done.stdout)}")
    return done.stdout.strip()
