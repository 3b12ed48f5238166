"""Archives for the kernel's initial file system: "newc" cpio (kernel: driver-api/early-userspace/buffer-format.rst)."""

from __future__ import annotations

import stat
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One file of an archive: path without a leading slash, mode with its type bits, content (a link's target)."""

    path: str
    mode: int
    data: bytes = b""


def file_entry(path: str, data: bytes, mode: int = 0o644) -> Entry:
    """A regular file."""
    return Entry(path, stat.S_IFREG | mode, data)


def folder_entry(path: str, mode: int = 0o755) -> Entry:
    """A folder."""
    return Entry(path, stat.S_IFDIR | mode)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _record(entry: Entry, inode: int) -> bytes:
    name = entry.path.encode() + b"\0"
    fields = (inode, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + name) + _padded(entry.data)


def archive(entries: list[Entry]) -> bytes:
    """The archive's bytes: every folder on the way to an entry is added; all files belong to root.

    Several archives may follow each other in one file: the kernel unpacks them in order.
    """
    known: set[str] = set()
    whole: list[Entry] = []
    given = {entry.path for entry in entries}
    for entry in entries:
        parts = entry.path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder not in known and folder not in given:
                known.add(folder)
                whole.append(folder_entry(folder))
        whole.append(entry)
    records = [_record(entry, number) for number, entry in enumerate(whole, start=1)]
    data = b"".join([*records, _record(Entry("TRAILER!!!", 0), 0)])
    return data + b"\0" * (-len(data) % 512)
