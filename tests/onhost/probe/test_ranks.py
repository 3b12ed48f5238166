"""Real groups of ranks: the stand-in's numbers go through real shared memory; every fault is told and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import lab.standins.engine
from nearsocket.control import program
from nearsocket.model.errors import NearsocketError
from nearsocket.model.finding import Status
from nearsocket.model.parsers import zoneinfo
from nearsocket.model.probe import allreduce, place
from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.planning import LOG
from nearsocket.model.probe.starts import ProbeOrder, Started, StartOrder
from nearsocket.onhost.probe import entry, fill, own, standin, supervise
from nearsocket.onhost.probe.memory import bind_memory

ENGINE = str(Path(lab.standins.engine.__file__).parent)
NEAR = frozenset({0})


def run(count: int = 2, look: bool = False, limit_s: float = 60.0, argv: tuple[str, ...] = (), **environment: str) -> Started:
    """One start of the stand-in's ranks on this machine."""
    places = tuple(Place(number, node=0, near=(0,)) for number in range(count))
    variables = {**LOG, "NCCL_CUMEM_ENABLE": "0", "PYTHONPATH": ENGINE, **environment}
    ranks = RanksOrder(Backend.STANDIN, places, (4096, 12 << 10, 1 << 20), 2, 0.02, limit_s, variables)
    return entry.each(ProbeOrder((StartOrder("a", ranks, argv, sys.executable),), look))[0]


def descendants() -> set[int]:
    """Every process below this one, and processes that hold nccl- files, whoever their parent is now."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if "nearsocket.onhost.probe.launcher" in (folder / "cmdline").read_text():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def leftovers() -> list[str]:
    """Folders of probes, and nccl- files that no process maps: other ranks of this machine map theirs."""
    names = {str(path) for path in Path("/dev/shm").glob("nccl-*")}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            names -= {word for line in maps.read_text().splitlines() if "/nccl-" in line for word in line.split()[5:6]}
        except OSError:
            continue
    return [*map(str, Path("/run/nearsocket").glob("probe-*")), *sorted(names)]


@pytest.mark.parametrize("count", [2, 3])
def test_every_element_is_right_and_the_figures_of_every_rank_and_round_come_back(count: int) -> None:
    found = run(count)
    assert found.failed is None, found.words
    assert {(row.rank, row.round, row.size_bytes) for row in found.rows} == {
        (rank, turn, size) for rank in range(count) for turn in (0, 1) for size in (4096, 12 << 10, 1 << 20)
    }
    assert all(row.wrong == 0 and row.count >= 5 and row.median_us > 0 for row in found.rows)
    assert allreduce.judge("x", found).status is Status.PASS


def test_its_own_buffers_are_seen_and_judged_while_it_holds_its_communicator() -> None:
    found = run(look=True)
    assert found.seen is not None
    finding, where = place.judge("x", found, Backend.STANDIN, near=NEAR)
    assert (finding.status, where) == (Status.PASS, place.Where.NEAR)
    assert "near: 8 ring buffers" in finding.summary  # four channels a rank


def test_buffers_away_from_the_gpus_are_far() -> None:
    found = run(look=True)
    assert found.seen is not None
    finding, where = place.judge("x", found, Backend.STANDIN, near=frozenset({1}))
    # A node that this machine lacks is no word on where GPUs are.
    assert where is (place.Where.UNKNOWN if not Path("/sys/devices/system/node/node1").exists() else place.Where.FAR)
    assert finding.status is not Status.PASS


def test_a_wrong_sum_is_told_with_its_place() -> None:
    found = run(**{standin.FAULT: "wrong-sum"})
    judged = allreduce.judge("x", found)
    assert judged.status is Status.FAIL
    assert "wrong sums" in judged.summary
    assert {row.first_wrong for row in found.rows if row.wrong} <= {size // 2 - 1 for size in (4096, 12 << 10, 1 << 20)}
    assert {row.rank for row in found.rows if row.wrong} == {0, 1}  # what one rank spoils is in the other's next sum


def test_a_rank_that_dies_is_named_and_the_others_end_with_it() -> None:
    found = run(**{standin.FAULT: "dead-rank"})
    assert (found.failed, found.failed_rank) == ("ended with code 1 at round 1, 12288 bytes", 1)
    assert found.took_s < 30
    assert descendants() == set()


def test_a_hang_is_ended_at_its_limit() -> None:
    found = run(limit_s=3, **{standin.FAULT: "hang"})
    assert found.failed is not None
    assert found.failed.startswith("not done within 3 s; last heard at round 1, 12288 bytes")
    assert found.took_s < 30
    assert descendants() == set()


def test_no_file_and_no_folder_is_left_whatever_happened() -> None:
    before = set(leftovers())
    for fault in ("", "wrong-sum", "dead-rank"):
        run(**{standin.FAULT: fault})
    assert set(leftovers()) <= before


def test_ranks_end_when_whoever_started_them_is_killed() -> None:
    script = "import sys; from tests.onhost.probe.test_ranks import run, standin; run(limit_s=100, **{standin.FAULT: 'hang'})"
    root, before = Path(__file__).resolve().parents[3], set(leftovers())
    process = subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(descendants()) >= 3)  # a parent and two ranks
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: descendants() == set())
    run()  # only a killed program leaves its folder, and the next one takes it away
    assert set(leftovers()) <= before


def test_a_connection_that_breaks_ends_the_ranks() -> None:
    places = (Place(0, node=0), Place(1, node=0))
    variables = {"PYTHONPATH": ENGINE, "NCCL_CUMEM_ENABLE": "0", standin.FAULT: "hang"}
    ranks = RanksOrder(Backend.STANDIN, places, (4096, 8192), 1, 0.02, 100, variables)
    orders = ProbeOrder(tuple(StartOrder(name, ranks, python=sys.executable) for name in "abc"), look=False)
    process = subprocess.Popen(
        [sys.executable, "-c", "from nearsocket.onhost.main import main; main(['probe'])"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[3],
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(orders.to_json())
        process.stdin.close()
        wait_for(lambda: len(descendants()) >= 3)
        process.stdout.close()
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    assert descendants() == set()


def test_a_bound_rank_takes_memory_from_its_nodes_alone() -> None:
    script = (
        "from nearsocket.onhost.probe.memory import bind_memory; bind_memory((0,));"
        "import mmap; held = mmap.mmap(-1, 1 << 16); held[0] = 1; print(open('/proc/self/numa_maps').readline())"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "bind:0"


@pytest.mark.parametrize("node", [1023, 5000])
def test_a_node_that_is_not_there_binds_nothing(node: int) -> None:
    with pytest.raises(NearsocketError, match=f"expected to bind memory to node {node}, found: Invalid argument"):
        bind_memory((node,))


def wait_for(holds: object, limit_s: float = 30.0) -> None:
    import time

    end = time.monotonic() + limit_s
    assert callable(holds)
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        os.sched_yield()


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("/nonexistent/python", "expected to start /nonexistent/python, found: No such file or directory"),
        ("/bin/false", "the ranks' Python ended with code 1 before it measured: nothing said"),
    ],
)
def test_a_python_that_cannot_run_them_is_one_line(python: str, said: str) -> None:
    ranks = RanksOrder(Backend.STANDIN, (Place(0), Place(1)), (4096,), limit_s=20)
    found = entry.each(ProbeOrder((StartOrder("a", ranks, python=python),), look=False))[0]
    assert found.failed == said


def test_a_backend_that_is_not_there_is_one_line() -> None:
    found = run(PYTHONPATH="/nonexistent")
    assert found.failed is not None
    assert "expected the lab's stand-in engine on PYTHONPATH" in found.failed


def test_the_ranks_take_the_program_from_their_input_as_a_container_does(tmp_path: Path) -> None:
    """A stand-in for a container's runtime: it has the file of the environment, a folder for the log, and no checkout."""
    archive = tmp_path / "program.zip"
    archive.write_bytes(program.build())
    assert zipfile.is_zipfile(archive)
    runtime = tmp_path / "runtime"
    runtime.write_text(
        '#!/bin/sh\nif [ "$1" = rm ]; then echo "$@" >>' + str(tmp_path / "removed") + "; exit 0; fi\n"
        'set -a; . "${2#--env-file=}"; set +a; test -d "${3#--log=}" || exit 9; shift 3; exec "$@"\n'
    )
    runtime.chmod(0o755)
    words = (str(runtime), "run", "--env-file=@FOLDER@/env", "--log=@FOLDER@/log", sys.executable)
    variables = {"NCCL_CUMEM_ENABLE": "0", "PYTHONPATH": ENGINE}
    ranks = RanksOrder(Backend.STANDIN, (Place(0, node=0), Place(1, node=0)), (4096,), 1, 0.02, 60, variables)
    order = StartOrder("a", ranks, words, runtime=str(runtime), container="nearsocket-probe-1")
    found = entry.each(ProbeOrder((order,), False), own.Program(str(archive), archive.read_bytes()))[0]
    assert found.failed is None, found.words
    assert {row.rank for row in found.rows} == {0, 1}
    assert (tmp_path / "removed").read_text() == "rm --force --volumes nearsocket-probe-1\n"


SAYS = """#!{python}
import json, sys
row = {{"rank": 0, "round": 0, "size_bytes": 4096, "count": 5, "median_us": 1, "p99_us": 1, "min_us": 1, "mean_us": 1,
       "wrong": 0, "first_wrong": None}}
print(json.dumps({{"facts": {{}}, "rank": 0, "capped_bytes": None}}))
print(json.dumps({{"row": row, "rank": 0}}))
for changes in {changes}:
    print(json.dumps({{"row": {{**row, "rank": 1, **changes}}, "rank": 1}}))
print(json.dumps({{"holding": [1, 2]}}), flush=True)
sys.stdin.readline()
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{}], None),
        ([{"wrong": 512, "median_us": "fast"}], "a rank said figures that cannot be read: median_us: expected microseconds"),
        ([{"wrong": 512, "extra": 1}], "a rank said figures that cannot be read"),
        ([], "(2), found 1; rank 1 told nothing of 4 KiB in round 1"),
    ],
)
def test_a_row_that_cannot_be_read_or_is_missing_fails_the_start(tmp_path: Path, changes: object, said: str | None) -> None:
    """A stand-in for the ranks' parent, which says the rows of two ranks."""
    parent = tmp_path / "parent"
    parent.write_text(SAYS.format(python=sys.executable, changes=changes))
    parent.chmod(0o755)
    ranks = RanksOrder(Backend.STANDIN, (Place(0), Place(1)), (4096,), 1, limit_s=20)
    found = entry.each(ProbeOrder((StartOrder("a", ranks, (str(parent),)),), look=False))[0]
    assert (said in (found.failed or "")) if said else found.failed is None
    assert allreduce.judge("x", found).status is (Status.FAIL if said else Status.PASS)


@pytest.mark.parametrize(("there", "stays"), [(None, False), ("empty", True), ("a replica's", True)])
def test_the_folder_of_nearsocket_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str | None, stays: bool
) -> None:
    base = tmp_path / "run" / "nearsocket"
    if there:
        base.mkdir(parents=True)
    if there == "a replica's":
        (base / "a").mkdir()
    monkeypatch.setattr(entry.programs, "RUN", str(base))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert run().failed is None
    assert base.exists() is stays
    assert [path.name for path in base.iterdir()] == (["a"] if there == "a replica's" else []) if stays else True


def test_a_value_of_several_lines_cannot_enter_an_environment_file() -> None:
    with pytest.raises(Exception, match="expected one line"):
        supervise.environment_file({"A": "1\nB=2"})
    assert supervise.environment_file({"B": "x y", "A": "'1'"}) == b"A='1'\nB=x y\n"


def test_a_node_that_is_not_there_cannot_be_filled() -> None:
    with pytest.raises(Exception, match="expected to fill node 4095"), fill.filled([4095]):
        pass


ZONES = """Node 0, zone    DMA32
  pages free     700000
        boost    0
        min      10
        low      20
        high     30
        managed  760000
        protection: (0, 0, 130000, 130000)
Node 0, zone   Normal
  pages free     {free}
        boost    7
        high     1000
        managed  33000000
        protection: (0, 0, 0, 0)
Node 1, zone   Normal
  pages free     5
        high     5
        managed  9
"""


@pytest.mark.parametrize(("node", "pages"), [(0, 60 + 130_000 + 2000 + 7), (1, 9), (2, 0)])
def test_what_the_kernel_keeps_free_is_known_for_each_node(node: int, pages: int) -> None:
    assert zoneinfo.kept_pages(ZONES.format(free=0), node) == pages


@pytest.mark.parametrize(("after_mib", "full"), [(600, True), (30_000, False), (900, False)])
def test_a_node_that_did_not_fill_is_no_filled_node(monkeypatch: pytest.MonkeyPatch, after_mib: int, full: bool) -> None:
    """The reading ahead is left out here: what is tested is that its word is not taken."""
    free = [64 << 20, after_mib << 20]
    monkeypatch.setattr(fill, "_free_bytes", lambda node: free.pop(0))
    monkeypatch.setattr(fill, "_read_ahead", lambda fd, size, node, out: os.write(out, b"done"))
    monkeypatch.setattr(fill, "read_text", lambda path: ZONES.format(free=0))
    if full:
        with fill.filled([0]):
            pass
        return
    with pytest.raises(NearsocketError, match=f"expected to fill node 0 with page cache, found {after_mib:,} MiB of it still free"):
        fill.filled([0]).__enter__()


def test_gloo_adds_up_right_on_this_machine() -> None:
    pytest.importorskip("torch")
    ranks = RanksOrder(Backend.GLOO, (Place(0), Place(0)), (4096, 1 << 20), 1, 0.05, 100)
    found = entry.each(ProbeOrder((StartOrder("a", ranks, python=sys.executable),), look=False))[0]
    assert found.failed is None, found.words
    assert all(row.wrong == 0 for row in found.rows)


def test_ranks_without_what_they_need_say_that_they_lack_it() -> None:
    found = run(PYTHONPATH="/nowhere")
    assert found.lacks
    assert "expected the lab's stand-in engine" in (found.failed or "")
    assert not run(**{standin.FAULT: "dead-rank"}).lacks


def test_ranks_of_torch_say_that_there_is_none() -> None:
    if importlib.util.find_spec("torch"):
        pytest.skip("this Python has torch")
    ranks = RanksOrder(Backend.GLOO, (Place(0), Place(1)), (4096,), 1, 0.02, 60.0)
    (found,) = entry.each(ProbeOrder((StartOrder("a", ranks, (), sys.executable),), False))
    assert found.lacks
    assert "expected torch in the ranks' Python, found none" in (found.failed or "")
