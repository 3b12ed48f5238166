"""Snapshots as files and as answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.control import snapshots
from nearsocket.control.transport import Answer, TransportError, Trouble
from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.snapshot import Snapshot, Source, SourceStatus


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
