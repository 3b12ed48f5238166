"""The one exception tree: every fault of the outside world that a person is told about in one line."""

from __future__ import annotations

from typing import Optional

#: Exit codes (DESIGN, exit codes). The first four are a judgement's, the fifth is wrong usage.
EXIT_CLEAN, EXIT_WARNINGS, EXIT_FAILURES, EXIT_UNKNOWN, EXIT_USAGE = 0, 1, 2, 3, 64


#: This machine could not write what was to be written: a full disk, an output that is closed (EX_IOERR of sysexits.h).
EXIT_NOT_WRITTEN = 74


class NearsocketError(Exception):
    """A fault with a message: what was expected and what was found. `hint` says what to do; both are one line."""

    exit_code = EXIT_FAILURES

    def __init__(self, message: str, hint: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(NearsocketError):
    """What the user typed or wrote cannot be used: a missing file, a value out of range, a broken inventory."""

    exit_code = EXIT_USAGE
