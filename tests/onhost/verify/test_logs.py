"""A folder of logs that the container may write to: only this start's own words are taken, whatever lies there, and in time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from nearsocket.onhost.collect.files import CUT
from nearsocket.onhost.verify import atstart, basis, logs
from tests.onhost.verify import machine as machines
from tests.onhost.verify.machine import Machine
from tests.onhost.verify.shapes import data, real

TEXT = data(real("shm-cumem-on"), "nccl.logs")[0]["text"]


def process(pid: int, inner: int | None = None) -> dict[str, Any]:
    return {"pid": pid, "nspid": [pid] if inner is None else [pid, inner]}


def read(folder: Path, *processes: dict[str, Any]) -> tuple[list[int], str]:
    entries, notes = logs.read(folder, processes)
    for entry in entries:
        assert set(entry) == {"pid", "path", "size_bytes", "text"}
    return [entry["pid"] for entry in entries], "; ".join(notes)


def test_a_log_is_given_to_the_process_that_has_its_number_inside(tmp_path: Path) -> None:
    (tmp_path / "nccl.gpu1.77").write_text(TEXT)
    (tmp_path / "nccl.gpu1.78").write_text(TEXT)
    (tmp_path / "nccl.gpu1.4242").write_text(TEXT)
    assert read(tmp_path, process(4242, 77), process(4243, 78)) == ([4242, 4243], "")
    assert read(tmp_path, process(4242)) == ([4242], "")


def test_a_number_of_two_processes_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "nccl.gpu1.77").write_text(TEXT)
    assert read(tmp_path, process(4242, 77), process(4243, 77)) == ([], "")


def test_two_logs_of_one_number_are_both_not_believed(tmp_path: Path) -> None:
    (tmp_path / "nccl.gpu1.77").write_text(TEXT)
    (tmp_path / "nccl.gpu2.77").write_text(TEXT)
    found, notes = read(tmp_path, process(4242, 77))
    assert found == [] and "neither is believed" in notes


def test_links_pipes_folders_and_devices_are_passed_over_at_once(tmp_path: Path) -> None:
    secret = tmp_path.parent / "shadow"
    secret.write_text(TEXT)
    (tmp_path / "nccl.h.1").symlink_to(secret)
    os.mkfifo(tmp_path / "nccl.h.2")
    (tmp_path / "nccl.h.3").mkdir()
    (tmp_path / "nccl.h.4").symlink_to("/dev/zero")
    (tmp_path / "nccl.h.5").symlink_to("nccl.h.5")
    began = time.monotonic()
    found, notes = read(tmp_path, *(process(pid) for pid in range(1, 6)))
    assert found == [] and time.monotonic() - began < 2
    assert notes.count("was not read") == 5


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match=r"symbolic links|directory"):
        logs.read(tmp_path / "link", [process(1)])
    assert basis.logs_state(str(tmp_path / "link")) == [0, 0, 0]


def test_ten_gigabytes_are_read_in_part_and_never_taken_for_whole(tmp_path: Path) -> None:
    log = tmp_path / "nccl.h.7"
    with log.open("w") as out:
        out.write(TEXT)
        out.truncate(10 << 30)
    began = time.monotonic()
    entries, _ = logs.read(tmp_path, [process(7)])
    assert time.monotonic() - began < 5
    assert len(entries[0]["text"]) < 1 << 20
    assert any(line.endswith(CUT) for line in entries[0]["text"].splitlines())


def test_many_names_cost_a_look_and_more_than_the_limit_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3000):
        (tmp_path / f"nccl.h.{100_000 + number}").touch()
    (tmp_path / "nccl.h.7").write_text(TEXT)
    began = time.monotonic()
    assert read(tmp_path, process(7)) == ([7], "")
    assert time.monotonic() - began < 2
    monkeypatch.setattr(logs, "MOST_NAMES", 50)
    assert "more than 50 names" in read(tmp_path, process(7))[1]


def test_all_logs_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 6):
        (tmp_path / f"nccl.h.{number}").write_text(TEXT)
    monkeypatch.setattr(logs, "_TOTAL_CAP", len(TEXT) * 2)
    entries, _ = logs.read(tmp_path, [process(number) for number in range(1, 6)])
    assert sum(len(entry["text"]) for entry in entries) < len(TEXT) * 3
    assert entries[-1]["text"].endswith(CUT)


def hostile(folder: Path, pid: int) -> None:
    """Everything at once, and the one log a claim of cuMem near."""
    os.mkfifo(folder / f"nccl.h.{pid}")
    (folder / "nccl.x.1").symlink_to("/etc/passwd")
    with (folder / f"nccl.y.{pid}").open("w") as out:
        out.truncate(10 << 30)
    for number in range(2000):
        (folder / f"junk{number}").touch()


def test_pages_win_over_a_hostile_folder(machine: Machine, ranks: tuple[int, int, int]) -> None:
    """Far pages stay far, in time; a log that claims otherwise changes nothing."""
    machine.gpus(1, ranks[1:])
    machine.runs(*ranks)
    folder = machine.started()
    hostile(folder, ranks[1])
    (folder / f"nccl.vm.{ranks[2]}").write_text(TEXT)
    machine.managed(machines.start(verify={"request": False, "timeout_s": 20}))
    began = time.monotonic()
    assert atstart.main(["--replica=a"], machine.tree) == 0
    assert time.monotonic() - began < 15
    assert machine.report()["word"] == "far"


def test_old_logs_of_an_earlier_start_are_not_looked_at(machine: Machine, ranks: tuple[int, int, int]) -> None:
    """Logs that claim cuMem near lie in the folder of the start before; this start's own is empty."""
    machine.gpus(0, ranks[1:])
    machine.runs(*ranks)
    old = machine.started(folder="20260130T110000Z-5")
    for pid in ranks[1:]:
        (old / f"nccl.vm.{pid}").write_text(TEXT)
    machine.started()
    machine.managed(machines.start(verify={"request": False, "timeout_s": 10}))
    atstart.main(["--replica=a"], machine.tree)
    told = {one["id"]: one["status"] for one in machine.report()["findings"]}
    assert told["nccl.affinity"] == "unknown"
    assert told["nccl.buffer-placement"] == "pass"
