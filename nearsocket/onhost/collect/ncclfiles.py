"""NCCL's debug logs that running processes hold open."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from nearsocket.model.snapshot import Source
from nearsocket.model.text import decode
from nearsocket.onhost.collect import children, procfs, redact
from nearsocket.onhost.collect.files import CUT, Context, absent, ok

_HEAD_BYTES, _TAIL_BYTES = 1 << 20, 256 << 10
_LOG_CAP, _TOTAL_CAP = 256 << 10, 2 << 20
#: Descriptors of one process that are looked at: NCCL holds one log open, an engine a few.
_MOST_LOGS = 32
#: What the parser of NCCL logs reads (nearsocket/model/parsers); other lines stay on the host.
_KEPT = re.compile(
    r"NCCL version|set by environment|NCCL_[A-Z0-9_]+ set|cudaDriverVersion|CUMEM|cuMem|MMAP|shareable|Channel \S+.* via "
    r"|\bvia (?:SHM|P2P|NET|direct)|[Aa]ffinity|nRanks|nranks|rank \d+|falling back|NCCL WARN|Topology detection|comm 0x"
    r"|P2P Chunksize|Connected all|NVLS|shm"
)
_LINE_CAP = 2000
_SIGN = re.compile(rb"NCCL (?:INFO|WARN|version|TRACE)")
_FREE_FORM = re.compile(r"\.(?:log|txt|out|err)\Z|nccl", re.IGNORECASE)


def logs(context: Context) -> Source:
    """The debug logs of the processes that matter, each file once, the lines that matter."""
    pids = [process["pid"] for process in context.result("processes").data or [] if not process["vanished"]]
    if not pids:
        return absent("no process that matters")
    entries: list[dict[str, Any]] = []
    seen: set[tuple[int, int]] = set()
    left = _TOTAL_CAP
    hung: list[str] = []
    for pid, result in zip(pids, children.stepwise(pids, _logs, 2.0, context.within(8))):
        if result.hung:
            hung.append(str(pid))
        for entry in result.parts.get("logs", []):
            identity = tuple(entry.pop("identity"))
            if identity in seen:
                continue
            seen.add(identity)
            entry["text"] = cut(entry["text"], left)
            left -= min(left, len(entry["text"]))
            entries.append({"pid": pid, **entry})
    reason = f"the open files of pid {', '.join(hung)} gave no answer"[:300] if hung else None
    return ok(entries, reason) if entries or hung else absent("no process holds an NCCL debug log open")


def _logs(pid: int) -> Iterator[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, target in sorted(procfs.file_links(pid).items()):
        if not target.startswith("/") or target.startswith(("/dev/", "/proc/", "/sys/")):
            continue
        if number > 2 and not _FREE_FORM.search(target.replace(" (deleted)", "")):
            continue
        entry = _log(f"/proc/{pid}/fd/{number}", target)
        if entry:
            found.append(entry)
            yield {"logs": found}
        if len(found) >= _MOST_LOGS:
            return


def _log(link: str, target: str) -> Optional[dict[str, Any]]:
    """One log through its descriptor's link, which a rename or a container's own view of paths cannot mislead."""
    try:
        if not stat.S_ISREG(Path(link).stat().st_mode):
            return None
        fd = os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return read(fd, target)
    except OSError:
        return None
    finally:
        os.close(fd)


def read(fd: int, target: str) -> Optional[dict[str, Any]]:
    """An open log's identity, path, size and lines that matter; None for what is no regular file or no log of NCCL's.

    Raises OSError.
    """
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        return None
    head = os.pread(fd, _HEAD_BYTES, 0)
    start = max(_HEAD_BYTES, facts.st_size - _TAIL_BYTES)
    tail = os.pread(fd, _TAIL_BYTES, start) if facts.st_size > _HEAD_BYTES else b""
    if not _SIGN.search(head) and not _SIGN.search(tail):
        return None
    gap = facts.st_size > _HEAD_BYTES + _TAIL_BYTES
    text = relevant(head, tail, gap)
    return {"identity": [facts.st_dev, facts.st_ino], "path": target, "size_bytes": facts.st_size, "text": text}


def cut(text: str, left: int) -> str:
    """The text's first `left` characters in whole lines, `<cut>` as its end where there were more."""
    return text if len(text) <= left else text[:left].rpartition("\n")[0] + f"\n{CUT}"


def relevant(head: bytes, tail: bytes, gap: bool = False) -> str:
    """The lines that matter of a log's beginning and end, secrets taken out, at most 256 KiB.

    A line `<cut>` stands where something was left out that may have mattered (`gap`: between the two), so that nobody takes
    the log for a whole one.
    """
    kept: list[str] = []
    size = 0
    middle = f"\n{CUT}\n" if gap else ""
    for line in (decode(head) + middle + decode(tail)).split("\n"):
        if line == CUT and gap:
            kept.append(CUT)
        if not _KEPT.search(line):
            continue
        kept.append(redact.text(line[:_LINE_CAP]) + (CUT if len(line) > _LINE_CAP and "NCCL" in line else ""))
        size += len(kept[-1]) + 1
        if size > _LOG_CAP:
            kept[-1] = CUT
            break
    return "\n".join(kept)
