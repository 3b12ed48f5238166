"""Reading small files of /proc, /sys and /etc: bounded, never blocking on a device or pipe, never raising for one of many."""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from nearsocket.model.snapshot import MISSING, Source, SourceStatus
from nearsocket.model.text import decode
from nearsocket.onhost.collect.children import stretched

CUT = "<cut>"
CAP_BYTES = 1 << 20


@dataclass(frozen=True)
class Context:
    """Where sources are read from. `results` holds the sources that were read before; `root` is `/` outside tests.

    `end` is when this source is cut off, by time.monotonic.
    """

    root: Path = Path("/")
    results: Mapping[str, Source] = field(default_factory=dict)
    end: float = math.inf

    def within(self, limit_s: float, share: float = 1.0) -> float:
        """A deadline in at most `limit_s` seconds (stretched) and that share of the time left, early enough to report."""
        now = time.monotonic()
        return now + max(0.0, min(stretched(limit_s), (self.end - now - 0.3) * share))

    def path(self, absolute: str) -> Path:
        """That absolute path under the root."""
        return self.root / absolute.lstrip("/")

    def result(self, name: str) -> Source:
        """A source that this one comes after."""
        return self.results.get(name, MISSING)

    @property
    def has_nvidia_driver(self) -> bool:
        """Whether the kernel module is loaded. Asking NVML without it would make NVML load it and create device files."""
        return self.path("/proc/driver/nvidia/version").exists() or self.path("/dev/nvidiactl").exists()


def read_bytes(path: object, cap: int = CAP_BYTES) -> bytes:
    """At most `cap` + 1 bytes of a file. Raises OSError; refuses what is neither a regular file nor of /proc or /sys."""
    fd = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"expected a regular file at {path}")
        parts: list[bytes] = []
        left = cap + 1
        while left > 0:
            part = os.read(fd, min(left, 1 << 20))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def read_text(path: object, cap: int = CAP_BYTES) -> str:
    """A file's text, cut at `cap` bytes with `<cut>` as its end. Raises OSError."""
    data = read_bytes(path, cap)
    return decode(data) if len(data) <= cap else decode(data[:cap]) + CUT


def text_or_none(path: object, cap: int = CAP_BYTES) -> Optional[str]:
    """A file's stripped text; None where it could not be read."""
    try:
        return read_text(path, cap).strip()
    except OSError:
        return None


def read_source(path: object, cap: int = CAP_BYTES) -> Source:
    """A whole file as a source's text. Raises OSError."""
    return Source(SourceStatus.OK, text=read_text(path, cap))


def read_files(base: Path, patterns: Iterable[str], cap: int = CAP_BYTES) -> Source:
    """The files under `base` that match the glob patterns, as `{relative path: text}`, stripped at the end.

    Absent where there is no such folder or file, denied where none of them could be read for want of permission.
    """
    texts: dict[str, str] = {}
    denied = 0
    for pattern in patterns:
        for path in sorted(base.glob(pattern)):
            try:
                texts[str(path.relative_to(base))] = read_text(path, cap).rstrip()
            except PermissionError:
                denied += 1
            except OSError:
                continue  # a sysfs attribute may refuse to be read (-EINVAL); it is left out
    if texts:
        return Source(SourceStatus.OK, data=texts, reason=f"no permission to read {denied} files" if denied else None)
    if denied:
        return Source(SourceStatus.DENIED, reason=f"no permission to read {denied} files under {base}")
    return absent(f"no such files under {base}")


def ok(data: object, reason: Optional[str] = None) -> Source:
    """A source that was read."""
    return Source(SourceStatus.OK, data=data, reason=reason)


def ok_text(text: str, reason: Optional[str] = None) -> Source:
    """A text source that was read."""
    return Source(SourceStatus.OK, text=text, reason=reason)


def absent(reason: str) -> Source:
    """A source that this host does not have."""
    return Source(SourceStatus.ABSENT, reason=reason)
