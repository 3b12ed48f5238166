"""Ends an apply at its n-th step: a child process that kills itself at that system call, before or after it has happened.

As after a power cut, what was written and not synced by then is lost: files that were open or closed without fsync become empty.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

_CALLS = (
    "write",
    "pwrite",
    "fsync",
    "fchmod",
    "fchown",
    "replace",
    "rename",
    "symlink",
    "unlink",
    "rmdir",
    "mkdir",
    "open",
)


class Bomb:
    """Counts steps and goes off at the n-th; `after`: the step happens first."""

    def __init__(self, at: int, after: bool) -> None:
        self.at, self.after, self.count = at, after, 0
        self.unsynced: dict[int, int] = {}
        self.kernel: set[int] = set()
        self.real = {name: getattr(os, name) for name in _CALLS}

    def step(self, run: Callable[[], Any]) -> Any:
        """One step."""
        self.count += 1
        due = self.count == self.at
        if due and not self.after:
            self.off()
        try:
            return run()
        finally:
            if due:
                self.off()

    def off(self) -> None:
        """The cut: unsynced contents are lost, the process is gone at once."""
        for copy in self.unsynced.values():
            os.ftruncate(copy, 0)
        os.kill(os.getpid(), signal.SIGKILL)

    def arm(self) -> None:
        """Put itself before the system calls of this process."""
        for name in _CALLS:
            setattr(os, name, self._wrap(name))

    def _wrap(self, name: str) -> Callable[..., Any]:
        real = self.real[name]

        def call(*args: Any, **keywords: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                fd = real(args[0], args[1] & ~os.O_TRUNC, *args[2:], **keywords)
                if args[1] & os.O_TRUNC:  # a file of /proc/sys: opening it takes nothing away, one write sets it
                    self.kernel.add(fd)
                return fd
            if name == "write" and args[0] in self.kernel:
                return self.step(lambda: os.ftruncate(args[0], 0) or real(*args))
            result = self.step(lambda: real(*args, **keywords))
            if name == "open":
                self.unsynced[os.fstat(result).st_ino] = os.dup(result)
            elif name == "fsync":
                copy = self.unsynced.pop(os.fstat(args[0]).st_ino, None)
                if copy is not None:
                    os.close(copy)
            return result

        return call


def killed(run: Callable[[Bomb], None], at: int, after: bool) -> bool:
    """Whether `run`, in a child process, was ended at that step; False where it ended by itself before. Raises where it failed."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            bomb = Bomb(at, after)
            bomb.arm()
            run(bomb)
            code = 0
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the apply failed by itself"
    return False
