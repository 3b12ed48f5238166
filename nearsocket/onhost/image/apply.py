"""Applies the kit to a folder: all or nothing, and the same answer when it is run again.

Everything is checked before anything is written. A file is written beside the old one, synced, read back, compiled, and
renamed over it: a kill, a full disk or a power cut leaves the old file or the new one. Where a kit edits several files and
the run is cut between two renames, the next run finishes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import posixpath
import stat
from collections.abc import Iterator
from pathlib import Path

from nearsocket.model.errors import NearsocketError
from nearsocket.model.image.kit import Edit, Kit, grown, sha256
from nearsocket.model.image.tree import State, Verdict, demand, judge
from nearsocket.model.text import one_line
from nearsocket.onhost.image.folder import package_folder, read_tree

_LEFTOVER = ".nearsocket-new"


def apply(root: Path, kit: Kit) -> tuple[bool, Verdict]:
    """Apply the kit to the package in `root`; whether anything was changed, and the state that was read back.

    Raises NearsocketError (exit 2), expected and found, for anything that is not one of the kit's releases; nothing is
    changed then. Raises UsageError where `root` holds no such package.
    """
    package = package_folder(root, kit)
    try:
        with _alone(package, kit):
            return _apply(package, kit)
    except OSError as error:
        where = one_line(str(error.filename or package), 200)
        raise NearsocketError(f"{where}: expected to read and write the package, found: {error.strerror}") from None


def _apply(package: Path, kit: Kit) -> tuple[bool, Verdict]:
    tree = read_tree(package, kit)
    verdict = judge(kit, tree)
    demand(verdict, kit, str(package), unchecked=True)
    edits = [edit for edit in verdict.release.edits if sha256(tree[edit.path].data) == edit.before]
    written = [(edit, _write_beside(package / edit.path, tree[edit.path].data, edit, kit)) for edit in edits]
    for edit, new in written:
        _rename(new, package / edit.path)
    # Unchecked bytecode would be run instead of the file. It goes last, so that a refusal has touched nothing.
    for name in verdict.unchecked:
        (package / name).unlink()
    after = judge(kit, read_tree(package, kit))
    demand(after, kit, str(package))
    if after.state is not State.PATCHED or after.release != verdict.release:
        raise NearsocketError(f"{package}: expected the patch in place, found {after.state.value}", "another program writes there")
    return bool(written or verdict.unchecked), after


def _write_beside(path: Path, before: bytes, edit: Edit, kit: Kit) -> Path:
    """Write the file as it shall be beside the old one, with its owner and mode, and read it back. Raises NearsocketError."""
    whole = grown(before, kit.file(edit.append))
    if sha256(whole) != edit.after:
        raise NearsocketError(
            f"{edit.append}: expected sha256 {edit.after} of {edit.path} with it, found {sha256(whole)}",
            "the kit's text and its manifest do not belong together",
        )
    try:
        compile(whole, edit.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise NearsocketError(f"{edit.path}: expected Python that compiles, found {one_line(str(error), 200)}") from None
    new = path.with_name(f".{path.name}{_LEFTOVER}")
    try:
        _write(new, whole, path.lstat())
    except OSError as error:
        raise NearsocketError(
            f"{one_line(str(path), 200)}: expected to write the new file beside it, found: {error.strerror}; nothing was changed"
        ) from None
    if sha256(new.read_bytes()) != edit.after:
        raise NearsocketError(f"{one_line(str(new), 200)}: expected what was written, found other bytes")
    return new


def _write(path: Path, data: bytes, like: os.stat_result) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(fd, like.st_uid, like.st_gid)
        os.fchmod(fd, stat.S_IMODE(like.st_mode))
        os.fsync(fd)
    finally:
        os.close(fd)


def _rename(new: Path, path: Path) -> None:
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _alone(package: Path, kit: Kit) -> Iterator[None]:
    """One applier at a time; what a killed one left beside an edited file is removed first, and what a failed one would leave.

    The lock is on the folder itself, so that no lock file is needed.
    """
    with contextlib.ExitStack() as held:
        for folder in sorted({posixpath.dirname(path) for path in kit.edited}):
            try:
                fd = os.open(package / folder, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                continue  # the verdict says which file is missing
            held.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        _sweep(package, kit)
        try:
            yield
        finally:
            _sweep(package, kit)


def _sweep(package: Path, kit: Kit) -> None:
    for path in kit.edited:
        file = package / path
        left = file.with_name(f".{file.name}{_LEFTOVER}")
        if left.is_symlink() or left.exists():  # asked first: a read-only file system refuses even to remove nothing
            left.unlink()
