"""Writing whole or not at all beside other writers, and removing what a container made, however odd it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsocket.onhost.apply import disk, mounting
from nearsocket.onhost.apply.tree import Tree


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(disk.TEMPORARY))


def nested(folder: Path, depth: int) -> None:
    """Folders in one another, beyond what a path can name."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=at)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.mark.parametrize("depth", [1, 1200, 5000])
def test_a_tree_of_any_depth_is_removed(tmp_path: Path, depth: int) -> None:
    nested(tmp_path / "start", depth)
    disk.remove_tree(tmp_path / "start")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", f"{disk.TEMPORARY}0", f"{disk.TEMPORARY}1"]), min_size=1, max_size=5), max_size=8)
)
def test_folders_of_any_names_are_removed_and_links_are_not_followed(
    tmp_path_factory: pytest.TempPathFactory, paths: list[list[str]]
) -> None:
    base = tmp_path_factory.mktemp("tree")
    (base / "kept").mkdir()
    (base / "kept/file").touch()
    for words in paths:
        folder = base.joinpath("start", *words)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").touch()
        if not (folder / "link").is_symlink():
            (folder / "link").symlink_to(base / "kept")
    disk.remove_tree(base / "start")
    assert [path.name for path in base.iterdir()] == ["kept"]
    assert (base / "kept/file").exists()


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    with pytest.raises(OSError):
        disk.remove_tree(tmp_path / "link")


def test_a_second_writer_never_puts_the_firsts_half_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the other's write and its rename."""
    path = tmp_path / "a.verdict.json"
    code = (
        "import sys; from pathlib import Path; from nearsocket.onhost.apply import disk\n"
        "disk.replace(Path(sys.argv[1]), b'other', 0o644)"
    )
    real, done = os.fsync, []

    def other(fd: int) -> None:
        if not done:
            done.append(fd)
            subprocess.run([sys.executable, "-c", code, str(path)], check=True)
            assert path.read_bytes() == b"other"
        real(fd)

    monkeypatch.setattr(os, "fsync", other)
    disk.replace(path, b"first", 0o644)
    assert path.read_bytes() == b"first"
    assert left(tmp_path) == []


def test_a_temporary_name_is_no_collectors_and_what_a_writer_that_died_left_goes_with_the_next_write(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from nearsocket.onhost.apply import disk\n"
        "disk.sync_folder = lambda folder: None\n"
        "Path.replace = lambda *words: os._exit(0)\n"
        "disk.replace(Path(sys.argv[1]), b'half', 0o644)"
    )
    path = tmp_path / "nearsocket-a.prom"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    (name,) = left(tmp_path)
    assert name.endswith(".tmp")
    assert not path.exists()
    disk.replace(tmp_path / "nearsocket-b.prom", b"b", 0o644)
    assert left(tmp_path) == [name], "another file's is left alone"
    disk.replace(path, b"whole", 0o644)
    assert left(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_starts_folder_has_a_limit_that_holds_and_is_released_with_what_is_in_it(tmp_path: Path) -> None:
    """In a mount namespace of its own, which goes with the process."""
    code = """
import os, sys
from pathlib import Path
from nearsocket.onhost.apply import disk, mounting
from nearsocket.onhost.apply.tree import Tree
folder = Path(sys.argv[1]) / "a/start"
folder.mkdir(parents=True)
problem = mounting.small(folder)
if problem:
    print("refused", problem)
    sys.exit()
assert folder.stat().st_mode & 0o7777 == 0o1777
try:
    with open(folder / "large", "wb") as out:
        for _ in range(mounting.LOG_BYTES // (1 << 20) + 1):
            out.write(bytes(1 << 20))
            out.flush()
    print("no limit")
except OSError as error:
    print(error.errno)
made = 0
try:
    for made in range(mounting.LOG_NAMES + 1):
        (folder / f"d{made}").mkdir()
except OSError as error:
    print(error.errno)
mounting.release(Tree(), folder.parent)
assert list(folder.iterdir()) == []
disk.remove_tree(folder.parent)
print("gone")
"""
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    if (done.returncode and "unshare" in done.stderr) or done.stdout.startswith("refused"):
        pytest.skip(f"no mounts here: {done.stdout}{done.stderr}")
    assert done.stdout.split() == ["28", "28", "gone"], done.stderr


def test_nothing_is_released_that_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "proc/self/mountinfo"
    info.parent.mkdir(parents=True)
    rows = [("/run/nearsocket/a/1", "tmpfs"), ("/run/nearsocket/ab", "tmpfs"), ("/run/nearsocket/a/2", "ext4"), ("/run", "tmpfs")]
    info.write_text("".join(f"1 2 0:3 / {point} rw - {kind} none rw\n" for point, kind in rows))
    gone: list[str] = []
    monkeypatch.setattr(mounting._libc, "umount2", lambda point, flags: gone.append(os.fsdecode(point)) or 0, raising=False)
    mounting.release(Tree(tmp_path), tmp_path / "run/nearsocket/a")
    assert gone == [f"{tmp_path}/run/nearsocket/a/1"]
