"""What it costs to see where a process's nccl- files lie, by move_pages(2) and by numa_maps.

    PYTHONPATH=. python3 bench/placement_cost.py --gib 8 --runs 5

Starts a process with that much touched memory of 4 KiB pages and two tmpfs files as NCCL makes them, times both ways on
it in turn, prints the medians in milliseconds and their ratio as one JSON line, and ends the process. Both ways must see
the same pages, or it ends with code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from nearsocket.onhost.collect import buffers

RING_BYTES = 2354 * 4096  # NCCL's default ring receive buffer with its 4 bytes of head room (FIELD_NOTES 4)
PROC = Path("/proc")

PROCESS = """
import mmap, os, sys, tempfile
gib, rings, ring_bytes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
held = []
for _ in range(rings):
    fd, name = tempfile.mkstemp(prefix="nccl-", dir="/dev/shm")
    os.posix_fallocate(fd, 0, ring_bytes)
    area = mmap.mmap(fd, ring_bytes)
    for at in range(0, ring_bytes, 4096):
        area[at] = 1
    os.unlink(name)
    held.append(area)
for _ in range(gib):
    area = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, 1 << 30, 4096):
        area[at] = 1
    held.append(area)
print("ready", flush=True)
sys.stdin.read()
"""


def main() -> int:
    """Measure and print; 1 where the two ways disagree."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--gib", type=int, default=4, help="touched memory of the process")
    options.add_argument("--runs", type=int, default=5, help="runs of each way")
    options.add_argument("--rings", type=int, default=4, help="nccl- files")
    args = options.parse_args()
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(args.gib), str(args.rings), str(RING_BYTES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if not process.stdout or process.stdout.readline() != b"ready\n":
            sys.stderr.write("placement_cost: the process did not start\n")
            return 1
        result = measure(process.pid, max(5, args.runs))
    finally:
        process.kill()
        process.wait()
    whole = {"gib": args.gib, "rings": args.rings, "runs": max(5, args.runs), "python": sys.version.split()[0], **result}
    sys.stdout.write(json.dumps(whole) + "\n")
    return 0 if result["agree"] else 1


def measure(pid: int, runs: int) -> dict[str, object]:
    """Medians of both ways in milliseconds, in turn, and whether they saw the same pages."""
    page_times, maps_times, read_times = [], [], []
    agree = True
    for _ in range(runs):
        start = time.perf_counter()
        wanted = buffers.ranges(buffers.lines(PROC / str(pid) / "maps"))
        pages = {one.start: buffers.by_move_pages(pid, one).pages for one in wanted}
        page_times.append(time.perf_counter() - start)
        start = time.perf_counter()
        wanted = buffers.ranges(buffers.lines(PROC / str(pid) / "maps"))
        placed = buffers.by_numa_maps(buffers.lines(PROC / str(pid) / "numa_maps"), wanted)
        maps_times.append(time.perf_counter() - start)
        start = time.perf_counter()
        buffers.first_line(PROC / str(pid) / "numa_maps")
        read_times.append(time.perf_counter() - start)
        agree = agree and bool(pages) and pages == {address: one.pages for address, one in placed.items()}
    by_pages, by_maps = statistics.median(page_times) * 1000, statistics.median(maps_times) * 1000
    return {
        "move_pages_ms": round(by_pages, 3),
        "numa_maps_ms": round(by_maps, 3),
        "first_line_ms": round(statistics.median(read_times) * 1000, 3),
        "ratio": round(by_maps / by_pages, 1),
        "agree": agree,
        "machine": os.uname().machine,
    }


if __name__ == "__main__":
    sys.exit(main())
