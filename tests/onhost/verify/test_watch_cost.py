"""What the timer's look costs: processor time, and no command."""

from __future__ import annotations

import resource
import statistics
import subprocess
from pathlib import Path

import pytest

from nearsocket.control import program
from tests.onhost.verify.machine import Machine, Ranks
from tests.onhost.verify.watching import judged

#: Bare starts of the interpreter that a watch may cost (docs/verify.md).
MOST_STARTS = 8
PYTHON = "/usr/bin/python3"
#: Built before NVML is stood in for: the program carries the real pynvml.
PROGRAM = program.build()


def cost_s(words: list[str]) -> float:
    """Processor time of the best of several runs: what else the machine does comes on top of the others."""
    times = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median_low(sorted(times)[:3])


@pytest.mark.skipif(not Path(PYTHON).exists(), reason="no python3 of the system")
def test_a_watch_costs_at_most_eight_bare_starts_of_the_interpreter(machine: Machine, ranks: Ranks, tmp_path: Path) -> None:
    judged(machine, ranks)
    file = tmp_path / "nearsocket.pyz"
    file.write_bytes(PROGRAM)
    words = [PYTHON, "-I", "-B", str(file), "watch", f"--root={machine.tree.root}"]
    watched, bare = cost_s(words), cost_s([PYTHON, "-I", "-B", "-c", "pass"])
    assert machine.report()["confirmed_at"], "it took the short way"
    assert machine.report()["trigger"] == "start"
    assert watched <= MOST_STARTS * bare, f"{watched * 1000:.0f} ms against {bare * 1000:.0f} ms"


@pytest.mark.skipif(not Path("/usr/bin/strace").exists(), reason="no strace")
def test_a_watch_starts_no_command(machine: Machine, ranks: Ranks, tmp_path: Path) -> None:
    judged(machine, ranks)
    file, trace = tmp_path / "nearsocket.pyz", tmp_path / "trace"
    file.write_bytes(PROGRAM)
    words = [PYTHON, "-I", "-B", str(file), "watch", f"--root={machine.tree.root}"]
    subprocess.run(["strace", "-f", "-e", "trace=execve", "-o", str(trace), *words], check=True)
    calls = [line for line in trace.read_text().splitlines() if "execve(" in line]
    assert len(calls) == 1, calls
