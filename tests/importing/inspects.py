"""Containers as `inspect` tells them, in the shapes that Docker and podman have, and the hosts that run them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from nearsocket.model import read
from nearsocket.model.host import Host
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus
from nearsocket.onhost.collect import containers
from tests.plan.hosts import FOUR, four_on_one_socket
from tests.snapshots import machine

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "e" * 64
IMAGE_ID = "sha256:" + "a" * 64
#: What podman 4.3.1 said of containers that were made for this, paths and ids changed.
PODMAN: list[dict[str, Any]] = json.loads((ROOT / "tests/data/import/podman-4.3.json").read_text())
#: A command as operators give it, with words that a shell would take for its own.
SGLANG = [
    *("python3", "-m", "sglang.launch_server", "--model-path", "/srv/models/glm", "--host", "0.0.0.0", "--port", "30010"),
    *("--tp", "2", "--context-length", "131072", "--chat-template", "{{ 'a' }} $x %y"),
]


def docker(command: list[str], **changes: Any) -> dict[str, Any]:
    """A container of Docker on the host's network with GPUs 0 and 1, and models and secrets as operators give them."""
    made: dict[str, Any] = {
        "Id": "ab" * 32,
        "Name": "/glm-main",
        "Path": command[0],
        "Args": command[1:],
        "Image": IMAGE_ID,
        "State": {"Status": "running", "Pid": 4000},
        "Config": {
            "Image": "lmsysorg/sglang:v0.5.23",
            "Env": [
                "PATH=/usr/bin:/bin",
                "CUDA_VERSION=12.9.1",
                "NVIDIA_VISIBLE_DEVICES=all",
                "HF_TOKEN=hf_canarycanarycanary",
                "HF_HOME=/cache",
                "NCCL_P2P_DISABLE=1",
                "SGLANG_LOG=a b",
                "http_proxy=http://proxy.example:3128",
            ],
            "Entrypoint": command[:3],
            "Cmd": command[3:],
            "User": "",
            "WorkingDir": "/sgl-workspace",
            "Labels": {"maintainer": "x"},
        },
        "HostConfig": {
            "NetworkMode": "host",
            "PortBindings": {},
            "RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0},
            "Privileged": False,
            "CapAdd": ["SYS_NICE"],
            "SecurityOpt": None,
            "IpcMode": "private",
            "PidMode": "",
            "ShmSize": 34359738368,
            "CpusetCpus": "",
            "CpusetMems": "",
            "CgroupParent": "",
            "Runtime": "runc",
            "Ulimits": [{"Name": "memlock", "Hard": -1, "Soft": -1}],
            "DeviceRequests": [
                {"Driver": "", "Count": 0, "DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]], "Options": {}},
            ],
            "Devices": [],
        },
        "Mounts": [
            {"Type": "bind", "Source": "/srv/models", "Destination": "/srv/models", "Mode": "ro", "RW": False},
            {"Type": "bind", "Source": "/srv/cache", "Destination": "/cache", "Mode": "", "RW": True},
        ],
    }
    for key, value in changes.items():
        place, _, name = key.partition("__")
        (made[place] if name else made)[name or place] = value
    return made


IMAGE: dict[str, Any] = {
    "Id": IMAGE_ID,
    "RepoDigests": [f"mirror.example/sglang@sha256:{'d' * 64}", f"lmsysorg/sglang@{DIGEST}"],
    "Config": {
        "Env": ["PATH=/usr/bin:/bin", "CUDA_VERSION=12.9.1", "NVIDIA_VISIBLE_DEVICES=all"],
        "User": "",
        "WorkingDir": "/sgl-workspace",
    },
}


def snapshot(*inspected: dict[str, Any], runtime: str = "docker", image: dict[str, Any] | None = None) -> Snapshot:
    """The recipe's machine with these containers running; nothing of their processes was seen."""
    boxes = [containers.describe(runtime, copy.deepcopy(one)) for one in inspected]
    images = [containers._image(runtime, image or IMAGE)]
    made = {"containers": Source(SourceStatus.OK, data=boxes), "images": Source(SourceStatus.OK, data=images)}
    base = four_on_one_socket()
    return Snapshot(**{**vars(base), "sources": {**base.sources, **made}})


def host(*inspected: dict[str, Any], **options: Any) -> Host:
    """That machine as the typed host."""
    return read.host(snapshot(*inspected, **options))


GPUS = tuple(gpu.pci for gpu in FOUR)
UUIDS = tuple(machine.uuid(n + 1) for n in range(4))
