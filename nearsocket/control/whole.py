"""Files written whole or not at all (a temporary name beside, then one rename), and read whole or refused."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from nearsocket.model.errors import UsageError


def write(path: Path, text: str, mode: int) -> None:
    """The file has that text and mode, or what it had before. Raises OSError, and leaves nothing behind then or at an interrupt."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def data(path: Path, what: str, most_bytes: int) -> bytes:
    """The content of that regular file. Raises UsageError where it is none, or larger; OSError where it cannot be read."""
    # Without O_NONBLOCK the opening of a FIFO waits for a writer, for good.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise UsageError(f"{path}: expected {what}, found no regular file", "copy what it gives into a file")
        found = stream.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise UsageError(f"{path}: expected {what} of at most {most_bytes >> 20} MiB, found a larger one")
    return found


def read(path: Path, what: str, most_bytes: int) -> str:
    """The text of that regular file. Raises UsageError, one line that names the file and `what` was expected, for anything else."""
    try:
        found = data(path, what, most_bytes)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: expected {what} that can be read, found: {why}") from None
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected {what}, found a file that is not UTF-8 text") from None
