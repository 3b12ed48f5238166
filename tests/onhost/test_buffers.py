from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.onhost.collect import buffers
from tests.onhost.actors import PAGE, Pair, pair, process

PROC = Path("/proc")


@pytest.fixture(scope="module")
def ranks() -> Iterator[Pair]:
    with pair() as found:
        yield found


def refuse(pid: int, one: buffers.Range) -> buffers.Placement:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_pair_s_file_is_found_deleted_and_with_one_identity_in_both(ranks: Pair) -> None:
    owner, peer = (buffers.measure(PROC, pid) for pid in (ranks.owner, ranks.peer))
    (mine,), (theirs,) = owner["buffers"], peer["buffers"]
    assert mine["file"] == theirs["file"] == ranks.file
    assert mine["deleted"] and theirs["deleted"]
    assert (mine["device"], mine["inode"]) == (theirs["device"], theirs["inode"])
    assert mine["length"] == 64 * PAGE and mine["offset"] == 0
    major, _, minor = mine["device"].partition(":")
    device = Path("/dev/shm").stat().st_dev
    assert (int(major), int(minor)) == (device >> 8 & 0xFFF, device & 0xFF)


def test_move_pages_counts_what_each_process_touched(ranks: Pair) -> None:
    owner, peer = (buffers.measure(PROC, pid) for pid in (ranks.owner, ranks.peer))
    assert owner["buffers_by"] == peer["buffers_by"] == "move_pages"
    assert owner["buffers_reason"] is None
    assert sum(owner["buffers"][0]["pages"].values()) == 64
    # A read fault maps up to 16 pages around the one that was read (fault_around_bytes).
    assert 16 <= sum(peer["buffers"][0]["pages"].values()) <= 64


def test_numa_maps_sees_the_same_when_move_pages_is_refused(ranks: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    by_pages = [buffers.measure(PROC, pid) for pid in (ranks.owner, ranks.peer)]
    monkeypatch.setattr(buffers, "by_move_pages", refuse)
    by_maps = [buffers.measure(PROC, pid) for pid in (ranks.owner, ranks.peer)]
    for pages, maps in zip(by_pages, by_maps, strict=True):
        assert maps["buffers_by"] == "numa_maps"
        assert maps["buffers_reason"] == "move_pages: Operation not permitted"
        assert maps["buffers"][0]["policy"] == "default"
        assert {**pages["buffers"][0], "policy": None} == {**maps["buffers"][0], "policy": None}


@pytest.mark.parametrize("refused", [False, True])
def test_one_file_in_two_mappings_is_two_entries(refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with pair(two_mappings=True) as ranks:
        if refused:
            monkeypatch.setattr(buffers, "by_move_pages", refuse)
        found = buffers.measure(PROC, ranks.owner)["buffers"]
    assert sorted((one["offset"], one["length"]) for one in found) == [(0, 64 * PAGE), (PAGE, PAGE)]
    assert len({(one["device"], one["inode"]) for one in found}) == 1


def test_the_first_line_of_numa_maps_holds_the_policy(ranks: Pair) -> None:
    whole = (PROC / str(ranks.owner) / "numa_maps").read_text().splitlines()
    found = buffers.first_line(PROC / str(ranks.owner) / "numa_maps")
    assert found is not None and found.split()[:2] == whole[0].split()[:2]
    assert found.split()[1] == "default"


def test_a_process_without_such_files_has_none() -> None:
    with process("") as pid:
        assert buffers.measure(PROC, pid) == {"buffers": [], "buffers_by": "move_pages", "buffers_reason": None}


def test_an_unknown_machine_falls_back(monkeypatch: pytest.MonkeyPatch, ranks: Pair) -> None:
    monkeypatch.setattr(buffers, "SYSCALL", {"another": 1})
    found = buffers.measure(PROC, ranks.owner)
    assert found["buffers_by"] == "numa_maps" and "no move_pages number for" in str(found["buffers_reason"])


def test_a_process_that_is_gone_is_said_to_be_gone(ranks: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(pid: int, one: buffers.Range) -> buffers.Placement:
        raise OSError(errno.ESRCH, "No such process")

    monkeypatch.setattr(buffers, "by_move_pages", ended)
    with pytest.raises(ProcessLookupError):
        buffers.measure(PROC, ranks.owner)


def test_a_mapping_that_went_away_in_between_is_named(ranks: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "by_move_pages", refuse)
    monkeypatch.setattr(buffers, "by_numa_maps", lambda lines, wanted: {})
    found = buffers.measure(PROC, ranks.owner)
    assert found["buffers"] == [] and "1 mappings went away" in str(found["buffers_reason"])


MAPS = [
    b"55d0c0000000-55d0c0001000 r--p 00000000 08:01 131 /usr/bin/python3.11",
    b"7f5e8bf5f000-7f5e8e000000 rw-s 00000000 00:38 42 /dev/shm/nccl-x8QwA4 (deleted)",
    b"7f5e8e000000-7f5e8e001000 rw-s 00002000 103:05 42                     /dev/shm/nccl-x8QwA4",
    b"7f5e8e002000-7f5e8e003000 rw-s 00000000 00:38 43 /dev/shm/other",
    b"/dev/shm/nccl-broken line",
]


def test_maps_lines_become_ranges_with_decimal_device_numbers() -> None:
    first, second = buffers.ranges(iter(MAPS))
    assert (first.device, first.inode, first.deleted, first.file) == ("0:56", 42, True, "/dev/shm/nccl-x8QwA4")
    assert (second.device, second.offset, second.deleted) == ("259:5", 0x2000, False)


def test_numa_maps_lines_of_every_shape_are_counted() -> None:
    wanted = buffers.ranges(iter(MAPS[1:3]))
    text = [
        rb"7f5e8bf5f000 prefer (many):0-1 file=/dev/shm/nccl-x8QwA4\040(deleted) dirty=8353 N0=8000 N12=353 kernelpagesize_kB=4",
        rb"7f5e8e000000 bind=static:0 file=/dev/shm/nccl-x8QwA4 huge dirty=1 N1=1 kernelpagesize_kB=2048",
        rb"7f5e8e002000 default file=/dev/shm/nccl-else dirty=1 N1=1 kernelpagesize_kB=4",
    ]
    found = buffers.by_numa_maps(iter(text), wanted)
    assert found == {
        0x7F5E8BF5F000: buffers.Placement({0: 8000, 12: 353}, buffers.PAGE_BYTES, "prefer (many):0-1"),
        0x7F5E8E000000: buffers.Placement({1: 1}, 2 << 20, "bind=static:0"),
    }


@given(st.lists(st.binary(max_size=80).map(lambda line: b"/dev/shm/nccl-" + line.replace(b"\n", b"")), max_size=8))
def test_no_line_of_maps_breaks_the_reader(text: list[bytes]) -> None:
    assert isinstance(buffers.ranges(iter(text)), list)


def test_more_mappings_than_are_measured_are_told(ranks: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MOST_RANGES", 0)
    found = buffers.measure(PROC, ranks.owner)
    assert found["buffers"] == [] and found["buffers_reason"] == "only 0 of 1 mappings were measured"
