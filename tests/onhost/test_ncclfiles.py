from __future__ import annotations

import os
from pathlib import Path

import pytest

from nearsocket.onhost.collect import ncclfiles

VERSION = "gpu1:1:2 [0] NCCL INFO NCCL version 2.30.7+cuda13.0"
VIA = "gpu1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct"


@pytest.mark.parametrize(
    "line",
    [
        VERSION,
        VIA,
        "x:1:2 [0] NCCL INFO NCCL_CUMEM_ENABLE set by environment to 1.",
        "x:1:2 [0] NCCL INFO cudaDriverVersion 13000",
        "x:1:2 [0] NCCL INFO Setting affinity for GPU 0 to ffff,00000000",
        "x:1:2 [0] NCCL INFO ncclTopoGetCpuAffinity: Affinity for GPU 0 is empty, ignoring.",
        "x:1:2 [0] NCCL INFO MMAP allocated shareable host buffer /dev/shm/nccl-AbCdEf size 9637888",
        "x:1:2 [0] NCCL INFO CUMEM Host Alloc Size 9637888 pointer 0x1 handle 2 numa 0 dev 0",
        "x:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0",
        "x:1:2 [0] NCCL INFO cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.",
        "x:1:2 [0] NCCL WARN Error while attaching to shared memory segment",
        "x:1:2 [0] NCCL INFO Topology detection: could not read /sys/devices/system/node/node4294967295/cpumap",
        "(Worker pid=1) x:1:2 [0] NCCL INFO Allocated 9637892 bytes of shared memory in /dev/shm/nccl-AbCdEf",
    ],
)
def test_lines_that_the_parser_reads_are_kept(line: str) -> None:
    assert ncclfiles.relevant(f"other\n{line}\nother\n".encode(), b"") == line


def test_a_long_log_keeps_its_beginning_and_end_within_the_cap() -> None:
    text = ncclfiles.relevant((VERSION + "\n").encode() * 20_000, b"")
    assert text.endswith("\n<cut>") and len(text) <= (256 << 10) + 10
    assert ncclfiles.relevant(VERSION[:30].encode(), f"{VERSION[30:]}\n{VIA}".encode()) == f"{VERSION}\n{VIA}"


def links(path: Path) -> str:
    return f"/proc/{os.getpid()}/fd/{os.open(path, os.O_RDWR)}"


def test_a_log_is_read_by_its_descriptor_even_when_it_is_deleted(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_text(f"{VERSION}\n")
    link = links(log)
    log.unlink()
    entry = ncclfiles._log(link, f"{log} (deleted)")
    assert entry is not None and entry["text"] == VERSION and entry["size_bytes"] == len(VERSION) + 1


def test_the_middle_of_a_huge_log_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "nccl.log"
    log.write_bytes((VERSION + "\n").encode() + b"x" * (5 << 20) + f"\n{VIA}\n".encode())
    entry = ncclfiles._log(links(log), str(log))
    assert entry is not None and entry["text"].splitlines() == [VERSION, "<cut>", VIA]


def test_files_that_are_no_nccl_log_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "app.log"
    other.write_text("hello\n")
    os.mkfifo(tmp_path / "nccl.fifo")
    assert ncclfiles._log(links(other), str(other)) is None
    assert ncclfiles._log(links(tmp_path / "nccl.fifo"), "x") is None
    assert ncclfiles._log("/proc/self/fd/99999", "x") is None


def test_a_log_that_was_cut_says_so_in_its_place() -> None:
    assert ncclfiles.relevant(VERSION.encode(), VIA.encode(), gap=True) == f"{VERSION}\n<cut>\n{VIA}"
    long = VIA + "x" * 3000
    assert ncclfiles.relevant(long.encode(), b"") == long[:2000] + "<cut>"
    engine = "server_args rank 0 " + "x" * 3000
    assert "<cut>" not in ncclfiles.relevant(engine.encode(), b""), "an engine's own long line is no part of NCCL's log"
