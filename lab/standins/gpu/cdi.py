"""The CDI specification that hands the GPUs for show to containers, for Docker and podman alike.

NVIDIA's toolkit would make it on a server (`nvidia-ctk cdi generate`); it is not to be had here, and `--gpus` needs it.
"""

from __future__ import annotations

import json

from lab.shapes import Shape
from lab.standins.gpu.describe import GUEST_PATH, gpus

GUEST_FILE = "/etc/cdi/nearsocket-standin.json"
FAULTS = "/run/nearsocket-standin/faults"
#: What every container with a GPU gets beside its devices, as the toolkit gives libraries and tools.
_MOUNTS = (
    (GUEST_PATH, "ro"),
    (FAULTS, "ro"),
    ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "ro"),
    ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "ro"),
    ("/usr/bin/nvidia-smi", "ro"),
)


def render(shape: Shape) -> str:
    """The specification: a device for each GPU by index and by UUID, and `all`."""
    devices = []
    for gpu in gpus(shape):
        edits = {"deviceNodes": [{"path": f"/dev/nvidia{gpu.index}"}]}
        devices += [{"name": name, "containerEdits": edits} for name in (str(gpu.index), gpu.uuid)]
    nodes = [{"path": f"/dev/nvidia{gpu.index}"} for gpu in gpus(shape)]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": nodes}})
    whole = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "mounts": [
                {"hostPath": path, "containerPath": path, "options": [mode, "nosuid", "nodev", "bind"]} for path, mode in _MOUNTS
            ],
        },
    }
    return json.dumps(whole, indent=1) + "\n"
