"""What NCCL does with host memory on two real GPUs, seen by grep and judged by the audit and explain, case by case.

    python3 bench/two_gpus.py OUT [--cases NAME ...] [--mib 48] [--loops 20]

Needs PyTorch with NCCL and two GPUs of one host; run as root. NVLink and P2P are kept out by NCCL_P2P_DISABLE=1 where the case
says shm, nothing of the cards is changed. Each case starts two ranks (one process a GPU, but for `one-process`), waits until
they have run all-reduces, then reads the host with the collector, both numa_maps with grep's eyes, and NCCL's log. OUT/CASE
keeps the log, the numa_maps and the snapshot. Prints one line a case; ends with 1 where audit or explain disagree with what
the plain text shows, 2 where a case did not run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from nearsocket.model import read
from nearsocket.model.check import Check
from nearsocket.model.explain import explain
from nearsocket.model.judge import judge
from nearsocket.onhost.collect.whole import collect

ROOT = Path(__file__).resolve().parent.parent
SHM = {"NCCL_P2P_DISABLE": "1"}
CASES: dict[str, dict[str, str]] = {
    "p2p-cumem-off": {"NCCL_CUMEM_ENABLE": "0"},
    "p2p-cumem-on": {"NCCL_CUMEM_ENABLE": "1"},
    "shm-cumem-off": {**SHM, "NCCL_CUMEM_ENABLE": "0"},
    "shm-cumem-on": {**SHM, "NCCL_CUMEM_ENABLE": "1"},
    "shm-host-path-off": {**SHM, "NCCL_CUMEM_ENABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0"},
    "one-process": {**SHM, "NCCL_CUMEM_ENABLE": "1"},
}
#: A ring buffer has more pages than this, a control file two (FIELD_NOTES 4); the proxy pool has 8,353 or one more.
RING_PAGES, POOL_PAGES = 256, (8353, 8354)
LINE = re.compile(r"file=(/dev/shm/nccl-\w+)\S* .*?((?:N\d+=\d+ ?)+)")
READY_S = 120.0


def rank(number: int, folder: Path, port: int, mib: int, loops: int) -> None:
    """One process: rank `number` of two, or both ranks where `number` is negative. Ends when OUT/CASE/stop exists."""
    import torch

    elements = mib * 1024 * 1024 // 2
    if number < 0:
        both = [torch.ones(elements, dtype=torch.bfloat16, device=f"cuda:{gpu}") for gpu in (0, 1)]

        def step() -> None:
            torch.cuda.nccl.all_reduce(both)
    else:
        torch.cuda.set_device(number)
        torch.distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=2)
        one = torch.ones(elements, dtype=torch.bfloat16, device="cuda")

        def step() -> None:
            torch.distributed.all_reduce(one)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(loops):
        step()
    torch.cuda.synchronize()
    took_ms = (time.perf_counter() - started) / loops * 1e3
    (folder / f"ready.{number}").write_text(json.dumps({"pid": os.getpid(), "ms": took_ms}), encoding="ascii")
    until = time.monotonic() + READY_S
    while not (folder / "stop").exists() and time.monotonic() < until:
        time.sleep(0.05)
    os._exit(0)  # NCCL's own end may wait for a peer that has gone


def plain(numa_maps: str) -> dict[str, Counter[int]]:
    """File to pages on each node, as grep and awk would add them up."""
    found: dict[str, Counter[int]] = {}
    for name, counts in LINE.findall(numa_maps):
        pages = found.setdefault(name, Counter())
        for pair in counts.split():
            node, _, number = pair[1:].partition("=")
            pages[int(node)] += int(number)
    return found


def checks() -> list[Check]:
    """The project's checks, loaded without the control side, which needs more than a GPU machine may have."""
    found = []
    for path in sorted((ROOT / "checks").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"nearsocket_checks.{path.stem}", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += [one.nearsocket_check for one in vars(module).values() if hasattr(one, "nearsocket_check")]
    return found


def start(name: str, folder: Path, given: argparse.Namespace) -> list[subprocess.Popen[bytes]]:
    """The case's processes, their output in OUT/CASE/out.N."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,BOOTSTRAP,SHM,ALLOC,ALLOC_HOST"}
    env = {**os.environ, **CASES[name], **debug, "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p"), "NCCL_NVLS_ENABLE": "0"}
    started = []
    for number in (-1,) if name == "one-process" else (0, 1):
        words = [sys.executable, __file__, str(folder), "--rank", str(number), "--port", str(port)]
        words += ["--mib", str(given.mib), "--loops", str(given.loops)]
        with (folder / f"out.{number}").open("wb") as out:
            started.append(subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
    return started


def look(name: str, folder: Path, pids: list[int]) -> list[str]:
    """Read, judge and compare; the disagreements, each as a text."""
    snapshot = collect(60.0, "gpuhost")
    (folder / "snapshot.json").write_text(snapshot.to_json(), encoding="utf-8")
    host = read.host(snapshot)
    near = frozenset(gpu.node for gpu in host.gpus if gpu.node is not None)
    maps = "".join(Path(f"/proc/{pid}/numa_maps").read_text(encoding="utf-8") for pid in pids[:1])
    (folder / "numa_maps").write_text(maps, encoding="utf-8")
    log = "".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("nccl.*")))
    (folder / "log").write_text(log, encoding="utf-8")
    files = plain(maps)
    rings = {file for file, pages in files.items() if sum(pages.values()) > RING_PAGES and sum(pages.values()) not in POOL_PAGES}
    audited = {buffer.file for buffer in host.buffers if buffer.role.value == "ring"}
    words = Counter(re.findall(r" via (\S+)", log))
    told = explain("log", log, near)
    verdicts = {finding.id: finding.status.value for finding in judge(host, checks())}
    faults = []
    if rings != audited:
        faults.append(f"grep sees {len(rings)} ring files, the audit {len(audited)}")
    if dict(words) != (told.facts or {}).get("transports"):
        faults.append(f"grep sees {dict(words)}, explain {(told.facts or {}).get('transports')}")
    far = sum(number for file in rings for node, number in files[file].items() if node not in near)
    placement = verdicts["nccl.buffer-placement"]
    expected = "fail" if far else "pass" if rings or "CUMEM Host Alloc" in log else "not-applicable"
    if placement != expected:
        faults.append(f"expected nccl.buffer-placement {expected}, found {placement}")
    through = ", ".join(f"{word} x{number}" for word, number in words.items())
    print(f"{name:18} {through:24} ring files {len(rings):3}  placement {placement:15} cumem {verdicts['nccl.cumem-in-force']}")
    return faults


def case(name: str, given: argparse.Namespace) -> int:
    """One case from start to end: 0 agreed, 1 disagreed, 2 not run."""
    folder = given.out / name
    folder.mkdir(parents=True, exist_ok=True)
    started = start(name, folder, given)
    try:
        until = time.monotonic() + READY_S
        while len(list(folder.glob("ready.*"))) < len(started):
            if time.monotonic() > until or any(one.poll() is not None for one in started):
                print(f"{name:18} did not run: see {folder}/out.*")
                return 2
            time.sleep(0.1)
        ready = [json.loads(path.read_text(encoding="ascii")) for path in sorted(folder.glob("ready.*"))]
        faults = look(name, folder, [one["pid"] for one in ready])
        print(f"{'':18} {max(one['ms'] for one in ready):.3f} ms an all-reduce of {given.mib} MiB")
        for fault in faults:
            print(f"{'':18} DISAGREES: {fault}")
        return 1 if faults else 0
    finally:
        (folder / "stop").touch()
        for one in started:
            try:
                one.wait(timeout=20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


def main() -> int:
    """Run the cases in turn; the worst code of them."""
    parser = argparse.ArgumentParser(description="NCCL's host buffers on two real GPUs, seen and judged.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--mib", type=int, default=48)
    parser.add_argument("--loops", type=int, default=20)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        rank(given.rank, given.out, given.port, given.mib, given.loops)
    return max(case(name, given) for name in given.cases)


if __name__ == "__main__":
    sys.exit(main())
