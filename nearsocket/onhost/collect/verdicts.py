"""The last verdict on each replica's start, as the proof left it, and which start is the newest."""

from __future__ import annotations

import json
import os
from typing import Any, Optional

from nearsocket.model import places
from nearsocket.model.snapshot import Source
from nearsocket.model.text import one_line
from nearsocket.onhost.collect.files import Context, absent, ok

#: A verdict with the evidence of eight ranks has some 30 KiB; and a host has few replicas.
_CAP_BYTES, _MOST = 1 << 20, 64


def verdicts(context: Context) -> Source:
    """Every replica's last verdict; absent where nothing was ever proven here."""
    folder = context.path(places.VERDICTS)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(places.SUFFIX))  # noqa: PTH208
    except FileNotFoundError:
        return absent("no start was proven here")
    entries = [_entry(context, name[: -len(places.SUFFIX)]) for name in names[:_MOST]]
    return ok(entries, f"only {_MOST} of {len(names)} verdicts were read" if len(names) > _MOST else None)


def _entry(context: Context, replica: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"replica": replica, "start": _start(context, replica), "verdict": None, "reason": None}
    try:
        value = json.loads(_read(context, places.verdict_file(replica), _CAP_BYTES))
        value.pop("basis", None)  # for the watch alone
        entry["verdict"] = value
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        entry["reason"] = one_line(str(error), 200)
    return entry


def _start(context: Context, replica: str) -> Optional[str]:
    """The name of the newest start's folder; None where the replica was not started since the boot."""
    try:
        text = _read(context, places.start_env(replica), 1 << 16).decode("utf-8", "replace")
    except OSError:
        return None
    return places.start_folder(text, replica).rpartition("/")[2] or None


def _read(context: Context, absolute: str, cap: int) -> bytes:
    fd = os.open(context.path(absolute), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(fd, cap + 1)
    finally:
        os.close(fd)
    if len(data) > cap:
        raise OSError(f"expected at most {cap} bytes at {absolute}, found more")
    return data
