"""Signals: a termination ends a command as Ctrl-C does, and cleaning up is not interrupted a second time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a termination or a lost terminal end the command as Ctrl-C does, so that it cleans up after itself."""

    def interrupt(_sign: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signs = (signal.SIGTERM, signal.SIGHUP)
    old = {sign: signal.signal(sign, interrupt) for sign in signs}
    try:
        yield
    finally:
        for sign, handler in old.items():
            signal.signal(sign, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold Ctrl-C off while cleaning: a second, impatient one must not leave half of it."""
    signs = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old = {sign: signal.signal(sign, signal.SIG_IGN) for sign in signs}
    try:
        yield
    finally:
        for sign, handler in old.items():
            signal.signal(sign, handler)
