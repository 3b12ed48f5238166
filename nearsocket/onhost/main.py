"""The program's entry on a server: `collect` prints one snapshot as JSON; `image` applies the patch kit or builds the image."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Optional

USAGE = "usage: collect [--timeout SECONDS] [--host NAME]"


def main(argv: Optional[list[str]] = None) -> NoReturn:
    """Run the named action and end the process at once, whatever children or threads still hang in the kernel."""
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _run(words)
    except BrokenPipeError:
        code = 141
    except KeyboardInterrupt:
        code = 130
    # os._exit: interpreter shutdown would wait for what may never come back.
    os._exit(code)


def _run(words: list[str]) -> int:
    timeout_s, host = 60.0, None
    action, rest = (words[0], words[1:]) if words else ("", [])
    if action == "image":
        from nearsocket.onhost.image.entry import run

        return run(rest)
    if action != "collect":
        return _usage(f"expected collect, found {action!r}")
    if len(rest) % 2:
        return _usage(f"expected a value behind {rest[-1]!r}")
    for name, value in zip(rest[::2], rest[1::2]):
        if name == "--host":
            host = value
        elif name == "--timeout":
            try:
                timeout_s = float(value)
            except ValueError:
                timeout_s = 0.0
            if not 1 <= timeout_s <= 3600:
                return _usage(f"expected a time limit from 1 to 3600 seconds, found {value!r}")
        else:
            return _usage(f"expected --timeout or --host, found {name!r}")
    from nearsocket.onhost.collect import collect

    _write(collect(timeout_s, host).to_json(indent=None).encode("ascii") + b"\n")
    return 0


def _usage(message: str) -> int:
    os.write(2, f"nearsocket: {message}; {USAGE}\n".encode("ascii", "backslashreplace"))
    return 64


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
