"""One writer of verdicts at a time on a host: a start's proof, its policy and the watch do not write over one another.

Imports are kept few: the watch takes the lock every few minutes.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearsocket.model import places
from nearsocket.onhost.apply import disk

_WAIT_S = 10.0


@contextmanager
def verdicts(root: Path) -> Iterator[bool]:
    """Whether the lock was had in time. It goes with the process."""
    path = root / f"{places.RUN}/verify.lock".lstrip("/")
    try:
        disk.make_folders(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _taken(fd)
    finally:
        os.close(fd)


def _taken(fd: int) -> bool:
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.2)
