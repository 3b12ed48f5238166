"""Snapshots as files and as answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control import snapshots
from nearsocket.control.transport import Answer, TransportError, Trouble, openssh
from nearsocket.control.transport.process import Ended
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.snapshot import Snapshot, SnapshotError, Source, SourceStatus, from_json


def snapshot(host: str = "gpu1") -> Snapshot:
    return Snapshot(host, "2026-01-31T12:00:00Z", None, {}, {}, {"meminfo": Source(SourceStatus.OK, "MemTotal: 1 kB")})


def answer(text: str | bytes) -> Answer:
    return Answer(text if isinstance(text, bytes) else text.encode(), "", 0.1)


def test_the_snapshot_is_found_behind_what_a_login_shell_says() -> None:
    text = "Welcome\n{not ours}\n" + snapshot().to_json(indent=None) + "\nlogout\n"
    assert snapshots.from_answer(answer(text), "gpu1") == snapshot()


@given(st.binary(max_size=200))
def test_any_other_answer_is_one_line(data: bytes) -> None:
    with pytest.raises(TransportError) as caught:
        snapshots.from_answer(answer(data), "gpu1")
    assert caught.value.trouble is Trouble.ANSWER
    assert "\n" not in caught.value.message


@given(st.integers(min_value=0, max_value=len(snapshot().to_json(indent=None)) - 1))
def test_a_snapshot_cut_anywhere_is_told(length: int) -> None:
    with pytest.raises(TransportError):
        snapshots.from_answer(answer(snapshot().to_json(indent=None)[:length]), "gpu1")


@pytest.mark.parametrize(
    "noise",
    [
        '{"schema"',
        '{"schema": "other/1"}\n',
        '{"schema": "nearsocket.snapshot/1", "host": "x"}\n',
        '{"schema": "nearsocket.snapshot/1"',
    ],
)
def test_noise_that_begins_like_a_snapshot_does_no_harm(noise: str) -> None:
    line = snapshot().to_json(indent=None)
    assert snapshots.from_answer(answer(f"{noise}{line}\n"), "gpu1") == snapshot()
    assert snapshots.from_answer(answer(f"{line}\n{noise}"), "gpu1") == snapshot()


def test_another_hosts_snapshot_behind_the_right_one_is_not_taken() -> None:
    text = "".join(f"{snapshot(name).to_json(indent=None)}\n" for name in ("gpu1", "gpu2"))
    assert snapshots.from_answer(answer(text), "gpu1") == snapshot()


def test_many_beginnings_cost_little() -> None:
    text = '{"schema": "nearsocket.snapshot/1"\n' * 100_000
    with pytest.raises(TransportError, match="not JSON"):
        snapshots.from_answer(answer(text), "gpu1")


def ask(ended: Ended) -> Snapshot:
    return snapshots.asked(lambda: openssh.answer(ended, 60, "gpu1"), "gpu1")


def test_a_whole_snapshot_counts_whatever_end_the_program_had_and_a_part_tells_that_end() -> None:
    line = snapshot().to_json(indent=None)
    assert ask(Ended(None, f"{line}\n".encode(), b"", False, 60.0)) == snapshot()
    assert ask(Ended(3, f"{line}\nbye\n".encode(), b"", False, 1.0)) == snapshot()
    with pytest.raises(TransportError, match="within 60 s, found part of an answer") as caught:
        ask(Ended(None, line[:-5].encode(), b"", False, 60.0))
    assert caught.value.trouble is Trouble.TIMEOUT
    with pytest.raises(TransportError, match="found no answer"):
        ask(Ended(None, b"", b"", False, 60.0))


def test_a_host_that_names_itself_otherwise_is_no_answer() -> None:
    with pytest.raises(TransportError, match="expected the snapshot of 'gpu1', found one that names itself 'gpu2'") as caught:
        snapshots.from_answer(answer(snapshot("gpu2").to_json()), "gpu1")
    assert caught.value.trouble is Trouble.ANSWER


def test_a_saved_snapshot_reads_back_and_replaces_an_older_one(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        path = snapshots.save(snapshot(), folder)
        assert snapshots.from_file(path) == snapshot()
    assert [file.name for file in folder.iterdir()] == ["gpu1.snapshot.json"]


@given(st.text(min_size=0, max_size=400))
def test_no_host_name_leaves_the_folder_or_hides(host: str) -> None:
    name = snapshots.file_name(host)
    assert name == Path(name).name
    assert name[0] not in ".-"
    assert len(name.encode()) <= 255
    assert name.isascii()


@pytest.mark.parametrize(("one", "other"), [("a/b", "a_b"), ("GPU1", "gpu1"), ("gpu1", "gpu1x"[:4])])
def test_names_that_fall_together_are_refused(one: str, other: str) -> None:
    with pytest.raises(UsageError, match="expected a file for each host"):
        snapshots.check_names([one, "between", f"{other}"])


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": "nearsocket.report/1"}', snapshot("other").to_json()])
def test_a_file_that_is_another_hosts_or_no_snapshot_is_not_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "gpu1.snapshot.json").write_text(content)
    with pytest.raises(NearsocketError, match="expected no file or an older snapshot of 'gpu1'"):
        snapshots.save(snapshot(), tmp_path)
    assert (tmp_path / "gpu1.snapshot.json").read_text() == content
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_is_looked_at_before_any_host_is_read(tmp_path: Path) -> None:
    snapshots.save(snapshot(), tmp_path)
    snapshots.prepare(tmp_path, ["gpu1", "gpu2"])
    assert [file.name for file in tmp_path.iterdir()] == ["gpu1.snapshot.json"]
    (tmp_path / "gpu2.snapshot.json").write_text("mine")
    with pytest.raises(UsageError, match=r"--save: .*gpu2\.snapshot\.json: expected no file or an older snapshot of 'gpu2'"):
        snapshots.prepare(tmp_path, ["gpu1", "gpu2"])
    for folder in (tmp_path / "gpu2.snapshot.json", tmp_path / "gpu2.snapshot.json" / "x", Path("/proc/nowhere"), Path("a\0b")):
        with pytest.raises(UsageError, match="--save: expected a folder to write in"):
            snapshots.prepare(folder, ["gpu1"])


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "gpu1.snapshot.json"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="found no regular file"):
        snapshots.from_file(path)
    with pytest.raises(UsageError, match="found another file"):
        snapshots.prepare(tmp_path, ["gpu1"])
    with pytest.raises(NearsocketError, match="found another file"):
        snapshots.save(snapshot(), tmp_path)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf" + snapshot().to_json().encode())
    assert snapshots.from_file(tmp_path / "x.json") == snapshot()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"host": "gpu1"', f'"host": "{"x" * 300_000}"', "'host' in the snapshot to have 1 to 255 characters, found 300000"),
        ('"host": "gpu1"', '"host": ""', "1 to 255 characters, found 0"),
        ('"took_s": 0.0', f'"took_s": {"9" * 400}', "source 'meminfo'"),
        ('"took_s": 0.0', '"took_s": 1e999', "source 'meminfo'"),
        ('"took_s": 0.0', '"took_s": NaN', "source 'meminfo'"),
        ('"took_s": 0.0', f'"took_s": {"9" * 5000}', "not JSON"),
    ],
)
def test_a_snapshot_of_impossible_values_is_one_line(old: str, new: str, said: str) -> None:
    text = snapshot().to_json()
    assert old in text
    with pytest.raises(SnapshotError) as caught:
        from_json(text.replace(old, new))
    assert said in caught.value.message
    assert len(caught.value.message) < 400


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NearsocketError, match="expected to write a snapshot there"):
        snapshots.save(snapshot(), tmp_path / "file" / "below")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1", b'{"schema": "x"}', b"[" * 100_000])
def test_a_file_that_is_no_snapshot_is_one_line_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        snapshots.from_file(path)
    assert caught.value.message.startswith(f"{path}: expected")
    assert "\n" not in caught.value.message


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as stream:
        stream.truncate(1 << 33)
    with pytest.raises(UsageError, match="at most 64 MiB"):
        snapshots.from_file(path)
