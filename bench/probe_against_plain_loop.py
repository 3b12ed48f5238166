"""Three probe runs and three loops written directly on torch.distributed, in turn, on the same GPUs: do they tell the same times?

    python3 bench/probe_against_plain_loop.py [--one-gpu] [--env NCCL_P2P_DISABLE=1 ...] [--sizes ...] [--runs 3] [--json FILE]

Each plain run is a file of its own that knows nothing of the probe: two processes, one tensor of zeros a size, five calls to warm
up, then calls between pairs of CUDA events, 64 at a time behind a kernel that waits until they are queued; the median of the slower
rank. For each size: the range of the plain runs, that of the probe's, the ratio of their medians, whether the probe's median lies
within the range of the plain runs. Ends with 1 where a ratio from 1 MiB up is off by more than --bound (3 %), 2 where a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import probe_alone

from nearsocket.model import read
from nearsocket.model.probe import planning, sizes
from nearsocket.model.probe.series import microseconds, of_starts
from nearsocket.model.probe.starts import ProbeOrder
from nearsocket.onhost.probe import entry

PLAIN = """
import json, os, statistics, sys, time
import torch, torch.distributed as dist
rank, world, port, backend, one_gpu = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5] == "1"
sizes, seconds = json.loads(sys.argv[6]), float(sys.argv[7])
gpu = backend == "nccl"
if gpu:
    torch.cuda.set_device(0 if one_gpu else rank)
dist.init_process_group(backend, init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=world)
found = {}
for size in sizes:
    tensor = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda" if gpu else "cpu")
    def timed(count):
        if not gpu:
            times = []
            for _ in range(count):
                began = time.perf_counter()
                dist.all_reduce(tensor)
                times.append((time.perf_counter() - began) * 1e3)
            return times
        times = []
        while len(times) < count:
            some = range(min(64, count - len(times)))
            pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in some]
            torch.cuda.synchronize()
            torch.cuda._sleep(200000 * len(some))
            for begin, end in pairs:
                begin.record()
                dist.all_reduce(tensor)
                end.record()
            torch.cuda.synchronize()
            times += [begin.elapsed_time(end) for begin, end in pairs]
        return times
    guess = torch.tensor([statistics.median(timed(6)[1:])], device="cuda" if gpu else "cpu")
    dist.all_reduce(guess, op=dist.ReduceOp.MAX)
    count = int(min(400, max(5, seconds * 1e3 / guess.item())))
    found[size] = statistics.median(timed(count)) * 1e3
print(json.dumps(found), flush=True)
os._exit(0)
"""


def plain(given: argparse.Namespace, chosen: tuple[int, ...]) -> dict[int, float]:
    """One plain run: size to the slower rank's median in microseconds. Raises RuntimeError where a rank failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    extra = {**(probe_alone.ONE_GPU if given.one_gpu else {}), **dict(given.env)}
    words = [str(given.ranks), port, given.backend, str(int(given.one_gpu)), json.dumps(chosen), str(given.budget)]
    env = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **extra}
    started = [
        subprocess.Popen([given.python, "-c", PLAIN, str(rank), *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(given.ranks)
    ]
    found: dict[int, float] = {}
    try:
        for one in started:
            out, error = one.communicate(timeout=given.limit)
            if one.returncode:
                raise RuntimeError(error.decode("utf-8", "replace").strip()[-300:])
            for size, time_us in json.loads(out.splitlines()[-1]).items():
                found[int(size)] = max(found.get(int(size), 0.0), time_us)
    finally:
        for one in started:
            if one.poll() is None:
                one.kill()
                one.wait()
    return found


def main() -> int:
    """Run both in turn and print."""
    parser = probe_alone.options(__doc__, budget_s=0.3, limit_s=180.0)
    parser.add_argument("--runs", type=int, default=3, help="of each side")
    parser.add_argument("--bound", type=float, default=0.03, help="how far a ratio from 1 MiB up may be from 1")
    given = parser.parse_args()
    given.rounds = 1
    ours = probe_alone.base(given, read.host(entry.look()))
    reference: dict[int, list[float]] = {}
    probed = []
    for number in range(given.runs):
        try:
            for size, time_us in plain(given, ours.sizes).items():
                reference.setdefault(size, []).append(time_us)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"plain run {number}: {error}")
            return 2
        run = entry.each(ProbeOrder((planning.start(ours, planning.CONFIGURED, number),), look=False))[0]
        if run.failed:
            print(f"probe run {number}: {run.failed}")
            return 2
        probed.append(run)
    off = 0
    print(f"{'size':>9}  {'plain loops':>24}  {'probe':>24}  {'ratio':>6}  within their range")
    rows = []
    for one in of_starts([run.rows for run in probed]):
        theirs = reference[one.size_bytes]
        ratio = one.median_us / statistics.median(theirs)
        within = min(theirs) <= one.median_us <= max(theirs)
        off += one.size_bytes >= sizes.MIB and abs(ratio - 1) > given.bound
        ranges = [f"{microseconds(min(times))} .. {microseconds(max(times))}" for times in (theirs, one.rounds_us)]
        print(f"{sizes.render(one.size_bytes):>9}  {ranges[0]:>24}  {ranges[1]:>24}  {ratio:>6.3f}  {'yes' if within else 'no'}")
        rows.append({"size_bytes": one.size_bytes, "plain_us": theirs, "probe_us": one.rounds_us, "ratio": ratio})
    wrong = sum(row.wrong for run in probed for row in run.rows)
    print(f"{off} sizes from 1 MiB up are off by more than {100 * given.bound:.0f} %; {wrong} wrong elements")
    if given.json:
        given.json.write_text(json.dumps(rows), encoding="ascii")
    return 1 if off or wrong else 0


if __name__ == "__main__":
    sys.exit(probe_alone.ended(main))
