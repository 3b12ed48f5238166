"""The applier on folders: all or nothing, expected and found, the same answer again."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nearsocket.model.errors import NearsocketError, UsageError
from nearsocket.model.image.kit import GAP, Kit, read
from nearsocket.model.image.tree import State, judge
from nearsocket.onhost.image.apply import apply
from nearsocket.onhost.image.folder import installed_root, read_tree
from tests.image.kits import ADDED, EDITED, RELIED, SECOND, everything, files, kit, package, raw, source

BOTH = (EDITED, SECOND)


def refused(root: Path, wanted: Kit) -> NearsocketError:
    """The refusal, after it was seen that nothing below `root` changed."""
    before = everything(root)
    with pytest.raises(NearsocketError) as caught:
        apply(root, wanted)
    assert everything(root) == before
    assert caught.value.exit_code == 2 and "\n" not in caught.value.message
    return caught.value


def state(root: Path, wanted: Kit) -> State:
    return judge(wanted, read_tree(root / "sglang", wanted)).state


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_each_release_is_patched_once_and_recognised_the_second_time(tmp_path: Path, version: str) -> None:
    folder = package(tmp_path, version)
    (folder / EDITED).chmod(0o640)
    before = everything(tmp_path)
    changed, verdict = apply(tmp_path, kit())
    assert changed and verdict.release.version == version and verdict.state is State.PATCHED
    after = everything(tmp_path)
    assert after.pop(f"sglang/{EDITED}") == (0o100640, source(version)[EDITED] + GAP + ADDED)
    del before[f"sglang/{EDITED}"]
    assert after == before, "nothing else was touched, nothing was left behind"
    whole = everything(tmp_path)
    assert apply(tmp_path, kit())[0] is False
    assert everything(tmp_path) == whole


@pytest.mark.parametrize("path", [EDITED, RELIED])
@pytest.mark.parametrize("patched", [False, True])
def test_one_changed_byte_is_refused_with_expected_and_found(tmp_path: Path, path: str, patched: bool) -> None:
    folder = package(tmp_path)
    if patched:
        apply(tmp_path, kit())
    whole = bytearray((folder / path).read_bytes())
    whole[3] ^= 1
    (folder / path).write_bytes(whole)
    said = refused(tmp_path, kit()).message
    assert f"sglang/{path}: expected sha256 " in said and ", found sha256 " in said


def test_a_release_that_the_kit_does_not_know_is_told_of_all_that_it_knows(tmp_path: Path) -> None:
    package(tmp_path, "0.9")
    error = refused(tmp_path, kit())
    assert "(1.0) or " in error.message and "(1.1), found sha256" in error.message
    assert error.hint == "the kit test/1 fits SGLang 1.0, 1.1 as released, unchanged"


def test_a_missing_file_is_found_none(tmp_path: Path) -> None:
    (package(tmp_path) / EDITED).unlink()
    assert refused(tmp_path, kit()).message.endswith(", found none")


@pytest.mark.parametrize("target", ["ar.real", "/etc/hostname"])
def test_a_link_is_not_followed(tmp_path: Path, target: str) -> None:
    file = package(tmp_path) / EDITED
    file.rename(file.with_name("ar.real"))
    file.symlink_to(target)
    assert refused(tmp_path, kit()).message.endswith("found a symbolic link")


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    file = package(tmp_path) / EDITED
    file.unlink()
    os.mkfifo(file)
    before = sorted(path.name for path in file.parent.iterdir())
    with pytest.raises(NearsocketError, match="found a special file"):
        apply(tmp_path, kit())
    assert sorted(path.name for path in file.parent.iterdir()) == before


def test_a_hard_linked_file_elsewhere_stays_as_it_was(tmp_path: Path) -> None:
    cache = tmp_path / "cache.py"
    cache.hardlink_to(package(tmp_path) / EDITED)
    apply(tmp_path, kit())
    assert cache.read_bytes() == source("1.1")[EDITED]


@pytest.mark.parametrize("name", ["ar.cpython-311-x86_64-linux-gnu.so", "ar.abi3.so"])
def test_a_compiled_module_that_python_would_load_instead_is_refused(tmp_path: Path, name: str) -> None:
    (package(tmp_path) / EDITED).with_name(name).write_bytes(b"\x7fELF")
    assert name in refused(tmp_path, kit()).message


def test_a_package_that_python_would_load_instead_is_refused(tmp_path: Path) -> None:
    (package(tmp_path) / EDITED).with_suffix("").mkdir()
    assert "found a folder that it loads instead" in refused(tmp_path, kit()).message


@pytest.mark.parametrize("patched", [False, True])
def test_unchecked_bytecode_goes_and_other_bytecode_stays(tmp_path: Path, patched: bool) -> None:
    folder = package(tmp_path)
    if patched:
        apply(tmp_path, kit())
    cache = (folder / EDITED).parent / "__pycache__"
    cache.mkdir()
    heads = {"ar.cpython-311.pyc": 1, "ar.cpython-312.pyc": 3, "ar.cpython-313.pyc": 0, "are.cpython-311.pyc": 1}
    for name, flags in heads.items():
        (cache / name).write_bytes(b"MAGI" + flags.to_bytes(4, "little") + b"x" * 8)
    assert apply(tmp_path, kit())[0] is True
    assert sorted(path.name for path in cache.iterdir()) == sorted(set(heads) - {"ar.cpython-311.pyc"})
    assert apply(tmp_path, kit())[0] is False


def test_a_refusal_leaves_unchecked_bytecode_alone(tmp_path: Path) -> None:
    folder = package(tmp_path, "0.9")
    cache = (folder / EDITED).parent / "__pycache__"
    cache.mkdir()
    (cache / "ar.cpython-311.pyc").write_bytes(b"MAGI\1\0\0\0")
    refused(tmp_path, kit())


def test_what_does_not_compile_is_refused(tmp_path: Path) -> None:
    text = b"def broken(:\n"
    manifest: Any = raw("1.1")
    from nearsocket.model.image.kit import sha256

    manifest["texts"][0]["sha256"] = sha256(text)
    manifest["releases"][0]["edits"][0]["after"] = sha256(source("1.1")[EDITED] + GAP + text)
    package(tmp_path)
    assert "expected Python that compiles" in refused(tmp_path, read({**files(manifest), "added.py": text})).message


def test_a_manifest_whose_result_is_another_is_refused(tmp_path: Path) -> None:
    manifest: Any = raw("1.1")
    manifest["releases"][0]["edits"][0]["after"] = "1" * 64
    package(tmp_path)
    assert "expected sha256 1111" in refused(tmp_path, read(files(manifest))).message


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_without_the_package_is_wrong_usage(tmp_path: Path, inside: bool) -> None:
    root = package(tmp_path) if inside else tmp_path
    with pytest.raises(UsageError, match="expected a folder sglang"):
        apply(root, kit())


STEPS = ("os.open", "os.write", "os.fsync", "os.fchmod", "pathlib.Path.rename", "pathlib.Path.unlink", "pathlib.Path.read_bytes")


def stepping(act: Callable[[int], None]) -> Iterator[None]:
    """Call `act` with the number of every system call of STEPS, before it and after it."""
    import pathlib

    count = 0
    saved = []
    for name in STEPS:
        owner: Any = os if name.startswith("os.") else pathlib.Path
        plain = name.rpartition(".")[2]
        original = getattr(owner, plain)

        def step(*args: Any, _call: Any = original, **more: Any) -> Any:
            nonlocal count
            count += 1
            act(count)
            answer = _call(*args, **more)
            count += 1
            act(count)
            return answer

        saved.append((owner, plain, original))
        setattr(owner, plain, step)
    try:
        yield
    finally:
        for owner, plain, original in saved:
            setattr(owner, plain, original)


def steps_of(root: Path, wanted: Kit) -> int:
    seen = [0]
    run = stepping(lambda number: seen.__setitem__(0, number))
    next(run)
    apply(root, wanted)
    run.close()  # type: ignore[attr-defined]
    return seen[0]


def killed_at(root: Path, wanted: Kit, at: int) -> None:
    """Apply in a child that sends itself SIGKILL at that step."""
    child = os.fork()
    if child == 0:
        run = stepping(lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == at else None)
        next(run)
        apply(root, wanted)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("edits", [(EDITED,), BOTH])
def test_a_kill_at_any_step_leaves_old_or_new_and_the_next_run_finishes(tmp_path: Path, edits: tuple[str, ...]) -> None:
    wanted = kit(edits=edits)
    package(tmp_path / "count")
    steps = steps_of(tmp_path / "count", wanted)
    assert steps > 12
    states = set()
    for at in range(1, steps + 1):
        root = tmp_path / str(at)
        folder = package(root)
        killed_at(root, wanted, at)
        for path in edits:
            assert (folder / path).read_bytes() in (source("1.1")[path], source("1.1")[path] + GAP + ADDED)
        states.add(state(root, wanted))
        apply(root, wanted)
        assert state(root, wanted) is State.PATCHED
        assert [path for path in root.rglob("*") if path.name.startswith(".")] == []
    assert states == {State.UNPATCHED, State.PATCHED} | ({State.PARTLY} if len(edits) > 1 else set())


@pytest.mark.parametrize("room", [0, 1, 20])
@pytest.mark.parametrize("edits", [(EDITED,), BOTH])
def test_a_file_system_that_takes_no_more_bytes_leaves_the_tree_as_it_was(
    tmp_path: Path, room: int, edits: tuple[str, ...]
) -> None:
    """RLIMIT_FSIZE stands in for a full disk: the kernel itself cuts the write short, then refuses it."""
    package(tmp_path)
    before = everything(tmp_path)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        try:
            apply(tmp_path, kit(edits=edits))
        except NearsocketError as error:
            os._exit(0 if "nothing was changed" in error.message else 1)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert everything(tmp_path) == before


def test_no_space_on_the_second_file_leaves_the_first_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path)
    plain, calls = os.write, []

    def write(fd: int, data: Any) -> int:
        calls.append(fd)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(fd, data)

    monkeypatch.setattr(os, "write", write)
    assert "No space left on device; nothing was changed" in refused(tmp_path, kit(edits=BOTH)).message


def test_this_pythons_own_package_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package(tmp_path) / "__init__.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_root(kit()) == tmp_path
    assert "sglang" not in sys.modules


def test_no_package_to_find_is_refused() -> None:
    with pytest.raises(NearsocketError, match="expected this Python to find one package sglang, found 0"):
        installed_root(kit())
