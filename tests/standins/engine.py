"""Runs the stand-in engine here: two rank processes, real shared memory, a free port. Its own words say when it is ready."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lab.standins.engine

PACKAGE = Path(lab.standins.engine.__file__).parent
#: No GPU is here: node 0 is where both stand, as far as this machine's memory tells nodes apart.
DESCRIPTION = "gpu index=0 pci=0000:21:00.0 node=0\ngpu index=1 pci=0000:41:00.0 node=0\n"
SUBSYSTEMS = "INIT,ENV,BOOTSTRAP,SHM,ALLOC,ALLOC_HOST"


@dataclass
class Running:
    """A running engine."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    @property
    def faults(self) -> Path:
        """The folder of its faults."""
        return self.folder / "faults"

    def rank_pids(self) -> list[int]:
        """The ranks' processes in order."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return sorted(map(int, children))

    def log(self) -> str:
        """All ranks' NCCL logs, rank by rank."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("nccl.*")))

    def rank_log(self, pid: int) -> str:
        """One rank's NCCL log."""
        (path,) = self.folder.glob(f"nccl.*.{pid}")
        return path.read_text()

    def get(self, path: str, timeout_s: float = 20) -> tuple[int, str]:
        """A GET: status and body."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=timeout_s) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path: str, body: object) -> tuple[int, Any]:
        """A POST of JSON: status and the answer's JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@contextmanager
def engine(
    folder: Path, *options: str, python: str = sys.executable, faults: tuple[str, ...] = (), **environ: str
) -> Iterator[Running]:
    """Start it, wait until it says that it serves, end it. AssertionError with its words where it ends by itself."""
    (folder / "faults").mkdir()
    for name in faults:
        (folder / "faults" / name).touch()
    (folder / "gpus.conf").write_text(DESCRIPTION)
    (folder / "weights.bin").write_bytes(b"w" * 100_000)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    process = subprocess.Popen(
        [python, "-m", "sglang.launch_server", "--model-path", str(folder / "weights.bin"), "--tp", "2", "--port", "0", *options],
        env={
            **clean,
            "PYTHONPATH": str(PACKAGE),
            "NEARSOCKET_STANDIN_GPUS": str(folder / "gpus.conf"),
            "NEARSOCKET_STANDIN_FAULTS": str(folder / "faults"),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
            "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p"),
            **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = []
        port = 0
        for line in process.stdout or ():
            said.append(line)
            if line.startswith("Listening on port "):
                port = int(line.split()[-1])
            if "ready to roll" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield Running(process, port, folder)
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
