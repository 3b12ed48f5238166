"""Around code that we do not know, the checks: standard output stays the report's, and no check takes for ever."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, cast

from nearsocket.model.check import MOST_FINDINGS, Check
from nearsocket.model.finding import Finding
from nearsocket.model.host import Host

#: The threads of checks that ran out of time: they go on, and print whenever they like.
_behind: list[threading.Thread] = []
#: Far above what judging takes (milliseconds). Ours have it too: a snapshot is outside text.
LIMIT_S = 60.0


@contextlib.contextmanager
def standard_output_kept() -> Iterator[None]:
    """What is printed meanwhile, by `print` or to the descriptor itself, goes to standard error.

    Where a check was left behind, that stays so: from then on only this thread's `sys.stdout` is the real one, on a descriptor
    of its own.
    """
    _flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _flush()
        if any(thread.is_alive() for thread in _behind):
            sys.stdout = cast("TextIO", _Mine(_on(kept), sys.stderr))
        else:
            os.dup2(kept, 1)
            os.close(kept)


class _Mine:
    """A stream for the thread that made it; to all other threads it is another one."""

    def __init__(self, own: TextIO, others: TextIO) -> None:
        self._thread, self._own, self._others = threading.get_ident(), own, others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own if threading.get_ident() == self._thread else self._others, name)


def _on(descriptor: int) -> TextIO:
    """`sys.stdout` on that descriptor instead of 1; as it is where it writes somewhere else already."""
    stream = sys.stdout
    try:
        if stream.fileno() != 1:
            return stream
    except (OSError, ValueError, AttributeError):
        return stream
    buffering = 1 if stream.isatty() else -1
    return open(descriptor, "w", buffering, encoding=stream.encoding, errors=stream.errors)


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        with contextlib.suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()


def limited(check: Check, limit_s: float | None = None) -> Check:
    """The check with a time limit: one that gives no verdict within it is `unknown` (the function raises TimeoutError).

    It runs in a thread, since a signal would end it in the main thread alone. A thread cannot be ended: it stays behind and
    goes with the process. Code that never lets go of the interpreter (a regular expression that explodes) is not caught.
    """
    function = check.function

    @functools.wraps(function)
    def within(host: Host) -> Iterable[Finding]:
        found: list[Finding] = []
        raised: list[BaseException] = []

        def run() -> None:
            try:
                for number, finding in enumerate(function(host)):
                    if number > MOST_FINDINGS:
                        break
                    found.append(finding)
            except BaseException as error:  # it is raised below, in the thread that asked
                raised.append(error)

        wait_s = LIMIT_S if limit_s is None else limit_s
        thread = threading.Thread(target=run, name=f"check {check.id}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had: without a limit, then
            run()
        else:
            thread.join(wait_s)
            if thread.is_alive():
                _behind.append(thread)
                raise TimeoutError(f"no verdict within {wait_s:g} s")
        if raised:
            raise raised[0]
        return found

    return dataclasses.replace(check, function=within)
