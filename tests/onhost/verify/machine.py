"""A machine for proofs: real ranks with real buffers in /dev/shm, on node 0 as this machine has it; GPUs, nodes and control groups
stand in, so that the GPUs can be on either of two nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model import places
from nearsocket.model.host import Engine
from nearsocket.model.settings import OnFar, Verify
from nearsocket.model.start import Start
from nearsocket.onhost.apply.tree import Tree
from tests.onhost import actors, standins
from tests.onhost.verify.shapes import START

RANKS = Path(__file__).resolve().parents[3] / "lab/guest/root/usr/local/lib/lab/ranks.py"
GPUS = ("0000:3d:00.0", "0000:3e:00.0")
STARTED = "20260131T110000Z-77"
CPUS = {0: "0-63", 1: "64-127"}
#: The process that started two ranks, and the ranks.
Ranks = tuple[int, int, int]
_ENGINE = """
import http.server, json, os, sys, time
manner, key, seen = sys.argv[1], sys.argv[2], sys.argv[3]
class Face(http.server.BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        with open(seen, "a") as out:
            out.write(json.dumps([self.command, self.path, body]) + "\\n")
        if self.path != "/health" and manner == "hangs":
            time.sleep(60)
        status = 200
        if self.path != "/health" and key and self.headers.get("Authorization") != "Bearer " + key:
            status = 401
        if self.path == "/health" and manner == "sick":
            status = 503
        data = json.dumps({"data": [{"id": "the/model"}]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    do_GET = do_POST = answer
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Face)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def ranks(channels: int = 2) -> Iterator[Ranks]:
    """The process that started two ranks, and the ranks: they make buffers as NCCL does (lab/guest)."""
    words = [sys.executable, str(RANKS), "--channels", str(channels)]
    one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        first, second = (int(word) for word in actors.line(one).split()[-2:])
        yield one.pid, first, second
    finally:
        one.terminate()
        one.wait()
        for pipe in (one.stdin, one.stdout):
            if pipe:
                pipe.close()


def kill(pid: int) -> None:
    """Kill a process of somebody else's and wait until it is dead, which takes a while on a busy machine."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        assert poller.poll(30_000)
    finally:
        os.close(handle)


@contextlib.contextmanager
def engine(folder: Path, manner: str = "well", key: str = "") -> Iterator[tuple[str, Path]]:
    """A stand-in for an engine's HTTP face, in a process of its own: its health address, and the file of what it was asked."""
    seen = folder / f"asked-{manner}"
    seen.touch()
    one = actors.start(_ENGINE, manner, key, seen)
    try:
        yield f"http://127.0.0.1:{actors.line(one)}/health", seen
    finally:
        actors.end(one)


def asked(seen: Path) -> list[Any]:
    """What the engine was asked: method, path, body."""
    return [json.loads(line) for line in seen.read_text().splitlines()]


@dataclass
class Machine:
    """The machine's tree and its GPUs' node; what a test changes."""

    tree: Tree
    patch: pytest.MonkeyPatch
    pids: list[int] = dataclasses.field(default_factory=list)

    def gpus(self, node: int, holders: tuple[int, ...]) -> None:
        """NVML: two GPUs on that node, held by these processes in turn."""
        word = 1 << 10 if node == 0 else 0
        masks = [word, 0 if node == 0 else 1 << 10, 0, 0]
        held = {gpu: [standins.Bag(pid=pid, usedGpuMemory=1 << 30)] for gpu, pid in enumerate(holders)}
        lib = standins.pynvml(
            nvmlDeviceGetCpuAffinity=lambda gpu, words: masks[:words],
            nvmlDeviceGetMemoryAffinity=lambda gpu, words, scope: [1 << node],
            nvmlDeviceGetComputeRunningProcesses=lambda gpu: held.get(gpu, []),
        )
        self.patch.setitem(sys.modules, "pynvml", lib)

    def runs(self, *pids: int) -> None:
        """These processes are in the replica's control group, in a scope below its slice."""
        scope = self.tree.at("/sys/fs/cgroup/nearsocket.slice/nearsocket-a.slice/docker-0.scope")
        scope.mkdir(parents=True, exist_ok=True)
        (scope / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def managed(self, *starts: Start) -> None:
        """The generation in force has these replicas."""
        current = self.tree.at("/etc/nearsocket/current")
        (current / "replicas").mkdir(parents=True, exist_ok=True)
        for start in starts:
            (current / "replicas" / f"{start.replica}.json").write_text(start.to_json())
        entries = [{"name": one.replica, "slice": one.slice, "unit": one.unit} for one in starts]
        (current / "manifest.json").write_text(json.dumps({"replicas": entries}))

    def started(self, replica: str = "a", folder: str = STARTED) -> Path:
        """The replica's newest start is that one; its folder."""
        place = f"{places.replica_folder(replica)}/{folder}"
        self.tree.at(place).mkdir(parents=True, exist_ok=True)
        self.tree.at(places.start_env(replica)).write_text(f'GPUS="x"\nSTART_DIR="{place}"\n')
        return self.tree.at(place)

    def report(self, replica: str = "a") -> Any:
        """The last verdict's JSON."""
        return json.loads(self.tree.at(places.verdict_file(replica)).read_text())

    def metrics(self, replica: str = "a") -> dict[str, float]:
        """The metrics, each row's name with labels to its value."""
        text = self.tree.at(places.metrics_file(places.METRICS, replica)).read_text()
        rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name.removeprefix("nearsocket_replica_"): float(value) for name, _, value in rows}


def start(health: str = "http://127.0.0.1:9/health", policy: OnFar = OnFar.WARN, **changes: Any) -> Start:
    """Replica `a`, whose proof has ten seconds."""
    verify = dataclasses.replace(Verify(policy, timeout_s=20), **changes.pop("verify", {}))
    return dataclasses.replace(START, gpus=GPUS, health=health, engine=Engine.SGLANG, verify=verify, **changes)


def made(root: Path, patch: pytest.MonkeyPatch) -> Machine:
    """Two sockets of one node each."""
    files = {
        "/proc/driver/nvidia/version": "NVRM version: 595.45.04\n",
        "/sys/devices/system/node/online": "0-1",
        "/sys/devices/system/node/possible": "0-1",
        "/sys/devices/system/node/has_cpu": "0-1",
        "/sys/devices/system/node/has_memory": "0-1",
        "/sys/devices/system/cpu/online": "0-127",
    }
    for node, cpus in CPUS.items():
        base = f"/sys/devices/system/node/node{node}"
        files[f"{base}/cpulist"] = cpus
        files[f"{base}/distance"] = "10 21" if node == 0 else "21 10"
        files[f"{base}/meminfo"] = f"Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: 524288 kB\n"
        for cpu in range(64 * node, 64 * node + 64):
            files[f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = str(node)
            files[f"/sys/devices/system/cpu/cpu{cpu}/topology/core_id"] = str(cpu)
    standins.tree(root, files)
    # A system with a control group of version 2 alone, whatever this machine has.
    assert os.access(root, os.W_OK)
    return Machine(Tree(root), patch)
