"""However a group of ranks ends, no process, no file and no folder of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearsocket.model.probe.order import Backend, Place, RanksOrder
from nearsocket.model.probe.starts import ProbeOrder, StartOrder
from nearsocket.onhost.probe import entry, standin
from tests.onhost.probe.group import ENGINE, launched, leftovers, run, wait_for


def test_no_file_and_no_folder_is_left_whatever_happened() -> None:
    before = set(leftovers())
    for fault in ("", "wrong-sum", "dead-rank"):
        run(**{standin.FAULT: fault})
    assert set(leftovers()) <= before


def test_ranks_end_when_whoever_started_them_is_killed() -> None:
    script = f"from tests.onhost.probe.group import run; run(limit_s=100, **{{{standin.FAULT!r}: 'hang'}})"
    root, before = Path(__file__).resolve().parents[3], set(leftovers())
    process = subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(launched()) >= 3)  # a parent and two ranks
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: launched() == set())
    run()  # only a killed program leaves its folder, and the next one takes it away
    # A rank that dies between making its file and unlinking it leaves that, as one of NCCL's does.
    assert {path for path in leftovers() if not path.startswith("/dev/shm/nccl-")} <= before


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
        wait_for(lambda: len(launched()) >= 3)
        process.stdout.close()
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    assert launched() == set()


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
