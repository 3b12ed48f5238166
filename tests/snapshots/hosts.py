"""The fixtures: name to snapshot. Here the ones that most tests use; the others in `machines` and `engines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nearsocket.model.snapshot import Snapshot
from tests.snapshots import engine, engines, machines, system
from tests.snapshots.base import ADDRESSES, ON_1, TWO_NODES, absent, host
from tests.snapshots.machine import NodeSpec


def two_socket_bound() -> Snapshot:
    """Healthy: two GPUs on node 1, the replica's cpuset holds node 1 alone, all ring buffers there."""
    tasks = engine.sglang(ADDRESSES, 1, cpus=ON_1, mems="1")
    box = engine.container(cpuset_cpus=ON_1, cpuset_mems="1")
    unit = engine.unit(exec_start="/usr/bin/docker run --rm --name sglang --gpus all --cpuset-mems 1 --shm-size 32g sglang:patched")
    return host(tasks=tasks, containers=[box], units=[unit])


def two_socket_clean() -> Snapshot:
    """As two_socket_bound, and the container has its GPUs by CDI: nothing is left to warn of."""
    tasks = engine.sglang(ADDRESSES, 1, cpus=ON_1, mems="1")
    gpus = {"device_requests": [], "cdi_devices": ["nvidia.com/gpu=all"]}
    box = engine.container(cpuset_cpus=ON_1, cpuset_mems="1", **gpus)
    start = "/usr/bin/docker run --rm --name sglang --device nvidia.com/gpu=all --cpuset-mems 1 --shm-size 32g sglang:patched"
    return host(tasks=tasks, containers=[box], units=[engine.unit(exec_start=start)])


def two_socket_far() -> Snapshot:
    """The fault: nothing binds the replica, node 1 is full of page cache, all ring buffers lie on node 0."""
    nodes = (TWO_NODES[0], NodeSpec(1, ON_1, "21 10", 256, 1, 250))
    return host(nodes, tasks=engine.sglang(ADDRESSES, 0), containers=[engine.container()], units=[engine.unit()])


def no_gpu() -> Snapshot:
    """Two sockets and no GPU, no driver, no engine."""
    without = absent("no NVIDIA driver")
    names = ("driver.files", "driver.module", "driver.modinfo", "driver.libraries", "nvml", "nvidia.topo", "nvidia.smi")
    changed = {"kernel.modules": system.modules("overlay"), "packages": "", "packages.holds": "", "dkms": "", "dev.char": []}
    gone = dict.fromkeys([*names, "container.toolkit"], without)
    return host(gpus=(), sources={**gone, **changed})


FIXTURES: Mapping[str, Callable[[], Snapshot]] = {
    "two-socket-bound": two_socket_bound,
    "two-socket-clean": two_socket_clean,
    "two-socket-far": two_socket_far,
    "no-gpu": no_gpu,
    **machines.FIXTURES,
    **engines.FIXTURES,
}
