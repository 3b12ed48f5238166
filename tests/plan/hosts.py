"""Hosts and settings for the planner's tests: the recipe's machine, and machines that hypothesis makes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from nearsocket.model import cpulist, read
from nearsocket.model.host import Engine, Host
from nearsocket.model.settings import GpuChoice, Image, ReplicaSettings, Settings
from nearsocket.model.snapshot import Snapshot
from tests.snapshots import machine
from tests.snapshots.base import ON_1, absent, host
from tests.snapshots.machine import GpuSpec, NodeSpec

IMAGE = Image("registry.example/engine@sha256:" + "0" * 64)
FOUR = tuple(GpuSpec(f"0000:c{n}:00.0", 1, ON_1, 1, ON_1) for n in (1, 2, 3, 4))
#: Docker 28.3 with CDI, its devices named by UUID and by index.
CDI_INFO = {"ServerVersion": "29.1.0", "CgroupDriver": "systemd", "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}


def cdi_file(count: int) -> dict[str, str]:
    """A CDI file that defines so many GPUs by index and by UUID."""
    names = [str(n) for n in range(count)] + [machine.uuid(n + 1) for n in range(count)]
    return {"/etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\ndevices:\n" + "".join(f'- name: "{name}"\n' for name in names)}


def four_on_one_socket(cdi: bool = True, **sources: Any) -> Snapshot:
    """The recipe's machine: four GPUs on socket 1, nothing running, nothing managed."""
    given = {"docker.info": CDI_INFO, "cdi": cdi_file(4)} if cdi else {"docker.info": {"ServerVersion": "24.0.5"}}
    return host(gpus=FOUR, sources={"generation": absent("nearsocket manages nothing here"), **given, **sources})


def eight(word: str = "NODE") -> Host:
    """Four GPUs on each of two sockets."""
    on_0 = tuple(GpuSpec(f"0000:1{n}:00.0", 0, "0-7,16-23", 0, "0-7,16-23") for n in (1, 3, 5, 7))
    return read.host(host(gpus=(*on_0, *FOUR), word=word))


def replica(name: str = "a", **changes: Any) -> ReplicaSettings:
    """An SGLang replica of two GPUs of the plan's choice."""
    gpus = changes.pop("gpus", None)
    count = changes.pop("count", 2)
    choice = GpuChoice(tuple(gpus)) if gpus else GpuChoice(count=count)
    values: dict[str, Any] = {"engine": Engine.SGLANG, "image": IMAGE, "gpus": choice, "model": "/srv/models/m", **changes}
    return ReplicaSettings(name=name, **values)


def asked(*replicas: ReplicaSettings, **changes: Any) -> Settings:
    """Settings with these replicas."""
    return Settings(replicas=replicas, **changes)


@st.composite
def machines(draw: st.DrawFn) -> Host:
    """Hosts of one or two sockets, one to four nodes each, SMT on or off, GPUs anywhere, some nodes without memory or CPUs."""
    sockets = draw(st.integers(1, 2))
    per_socket = draw(st.integers(1, 4))
    cores = draw(st.integers(2, 6))
    threads = draw(st.integers(1, 2))
    count = sockets * per_socket
    half = count * cores
    cpus = [cpulist.render([n * cores + c + half * t for c in range(cores) for t in range(threads)]) for n in range(count)]
    rows = [
        " ".join("10" if a == b else "12" if a // per_socket == b // per_socket else "32" for b in range(count))
        for a in range(count)
    ]
    bare = draw(st.sets(st.integers(0, count - 1), max_size=1))
    size = draw(st.integers(2, 512))
    nodes = tuple(NodeSpec(n, cpus[n], rows[n], 0 if n in bare else size, 0 if n in bare else size // 2, 0) for n in range(count))
    packages = {s: ",".join(cpus[s * per_socket : (s + 1) * per_socket]) for s in range(sockets)}
    packages = {s: cpulist.render(cpulist.parse(text)) for s, text in packages.items()}
    where = draw(st.lists(st.integers(0, count - 1), max_size=8))
    gpus = tuple(GpuSpec(f"0000:{0x11 + 2 * n:02x}:00.0", at, cpus[at], at, cpus[at]) for n, at in enumerate(where))
    return read.host(host(nodes, packages, gpus, sources={"cpus": machine.cpu_files(packages, threads)}))
