"""What the program says to a unit's journal and to `systemctl status`."""

from __future__ import annotations

import os
import sys

from nearsocket.model.text import one_line

#: Levels of sd-daemon(3), as a prefix of a line.
ERROR, WARNING, NOTICE, INFO = "<3>", "<4>", "<5>", ""


def tell(line: str, level: str = INFO) -> None:
    """One line for the unit's journal. A level shows only where the journal reads it: on a terminal it would be in the way."""
    prefix = level if "JOURNAL_STREAM" in os.environ else ""
    sys.stderr.write(f"{prefix}nearsocket: {one_line(line)}\n")
    sys.stderr.flush()


def status(line: str) -> None:
    """The line that `systemctl status` shows of the unit (sd_notify(3), STATUS=); nothing where systemd did not ask."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    import socket  # a start says one thing here, the watch nothing

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        try:
            to.settimeout(2)
            to.connect("\0" + address[1:] if address[0] == "@" else address)
            to.send(f"STATUS={one_line(line, 400)}".encode("ascii", "backslashreplace"))
        except OSError:
            pass  # the journal has it
