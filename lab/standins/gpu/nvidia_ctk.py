#!/usr/bin/python3 -IS
"""A stand-in for NVIDIA's container toolkit: `nvidia-ctk cdi generate`, which hands the GPUs for show to containers.

Known: --version, cdi list, cdi generate with or without --output=FILE. Like the real one it asks the driver first and names
libraries by the driver's version, so its file is stale once the driver is another. Written is JSON, which is YAML too. Python 3.9.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

VERSION = "1.17.8"
DESCRIPTION = os.environ.get("NEARSOCKET_STANDIN_GPUS", "/etc/nearsocket-standin/gpus.conf")
FAULTS = "/run/nearsocket-standin/faults"
MODULE = os.environ.get("NEARSOCKET_STANDIN_MODULE", "/proc/driver/nvidia/version")
LIBRARIES = os.environ.get("NEARSOCKET_STANDIN_LIBRARIES", "/usr/lib/x86_64-linux-gnu")
OUTPUT = "/etc/cdi/nearsocket-standin.json"


def driver() -> str:
    """The driver's version, of its module and its libraries. SystemExit with the real one's words where they differ."""
    library = Path(f"{LIBRARIES}/libnvidia-ml.so.1").resolve().name.partition(".so.")[2]
    try:
        module = Path(MODULE).read_text(encoding="ascii")
    except OSError:
        module = ""
    if f"  {library}  " not in module:
        said = "ERROR_LIB_RM_VERSION_MISMATCH" if module else "ERROR_DRIVER_NOT_LOADED"
        raise SystemExit(
            f"ERRO[0000] failed to generate CDI spec: failed to create device CDI specs: failed to initialize NVML: {said}"
        )
    return library


def specification(version: str, description: str) -> dict[str, object]:
    """A device for each GPU by index and by UUID, and `all`; every container gets libraries, the tool and the lab's files."""
    gpus = re.findall(r"^gpu index=(\d+) .*?\buuid=(\S+)", description, re.MULTILINE)
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{index}"}]}}
        for index, uuid in gpus
        for name in (index, uuid)
    ]
    nodes = [{"path": f"/dev/nvidia{index}"} for index, _ in gpus]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": nodes}})
    mounts = [(path, path) for path in ("/etc/nearsocket-standin/gpus.conf", FAULTS, "/usr/bin/nvidia-smi")]
    for name in ("libnvidia-ml", "libcuda"):
        mounts.append((f"{LIBRARIES}/{name}.so.{version}", f"/usr/lib/x86_64-linux-gnu/{name}.so.1"))
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "mounts": [
                {"hostPath": path, "containerPath": inside, "options": ["ro", "nosuid", "nodev", "bind"]} for path, inside in mounts
            ],
        },
    }


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def main(words: list[str]) -> None:
    """What was asked for. SystemExit for anything else."""
    if words == ["--version"]:
        print(f"NVIDIA Container Toolkit CLI version {VERSION}\ncommit: stand-in")
    elif words == ["cdi", "list"]:
        devices = json.loads(Path(OUTPUT).read_text(encoding="utf-8"))["devices"] if Path(OUTPUT).exists() else []
        print(f"INFO[0000] Found {len(devices)} CDI devices", file=sys.stderr)
        print("\n".join(f"nvidia.com/gpu={device['name']}" for device in devices))
    elif words[:2] == ["cdi", "generate"] and len(words) <= 3:
        option, _, output = (words[2:] or ["--output="])[0].partition("=")
        if option != "--output":
            raise SystemExit(f"Incorrect Usage: flag provided but not defined: {option}")
        text = json.dumps(specification(driver(), Path(DESCRIPTION).read_text(encoding="ascii")), indent=1) + "\n"
        if output:
            write(Path(output), text)
        else:
            print(text, end="")
        print("INFO[0000] Generated CDI spec with version 0.5.0", file=sys.stderr)
    else:
        raise SystemExit(f"nvidia-ctk (stand-in): unknown words: {' '.join(words)}")


if __name__ == "__main__":
    main(sys.argv[1:])
