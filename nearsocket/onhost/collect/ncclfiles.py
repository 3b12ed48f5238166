"""NCCL's own files: its configuration, and the debug logs that running processes hold open."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from nearsocket.model.snapshot import Source
from nearsocket.onhost.collect import children, procfs, redact
from nearsocket.onhost.collect.files import CUT, Context, absent, decode, ok

_HEAD_BYTES, _TAIL_BYTES = 1 << 20, 256 << 10
_LOG_CAP, _TOTAL_CAP = 256 << 10, 2 << 20
_CONF_CAP = 1 << 16
#: What the parser of NCCL logs reads (nearsocket/model/parsers); other lines stay on the host.
_KEPT = re.compile(
    r"NCCL version|set by environment|NCCL_[A-Z0-9_]+ set|cudaDriverVersion|CUMEM|cuMem|MMAP|shareable|Channel \S+.* via "
    r"|\bvia (?:SHM|P2P|NET|direct)|[Aa]ffinity|nRanks|nranks|rank \d+|falling back|NCCL WARN|Topology detection|comm 0x"
    r"|P2P Chunksize|Connected all|NVLS|shm"
)
_SIGN = re.compile(rb"NCCL (?:INFO|WARN|version|TRACE)")
_FREE_FORM = re.compile(r"\.(?:log|txt|out|err)\Z|nccl", re.IGNORECASE)


def conf(context: Context) -> Source:
    """NCCL_ lines of /etc/nccl.conf and of the homes of users whose processes matter, in the host and in containers."""
    places: dict[str, tuple[str, tuple[str, ...]]] = {"/etc/nccl.conf": (str(context.root), ("etc", "nccl.conf"))}
    own_root = _root_identity(None)
    for process in context.result("processes").data or []:
        home = _home(process["uid"])
        if home:
            places[f"{home}/.nccl.conf"] = (str(context.root), (*home.strip("/").split("/"), ".nccl.conf"))
        identity = _root_identity(process["pid"])
        if identity is not None and identity != own_root:
            base = f"/proc/{process['pid']}/root"
            for parts in (("etc", "nccl.conf"), ("root", ".nccl.conf")):
                places[f"{base}/{'/'.join(parts)}"] = (base, parts)
    names = sorted(places)
    results = children.stepwise(names, lambda name: _conf(*places[name]), 1.0, context.within(4))
    texts = {name: result.parts["text"] for name, result in zip(names, results) if "text" in result.parts}
    hung = [name for name, result in zip(names, results) if result.hung]
    reason = f"no answer from {', '.join(hung)}"[:300] if hung else None
    return ok(texts, reason) if texts or hung else absent("no nccl.conf")


def _root_identity(pid: Optional[int]) -> Optional[tuple[int, int]]:
    try:
        facts = Path(f"/proc/{pid}/root/." if pid else "/").stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _home(uid: Optional[int]) -> Optional[str]:
    try:
        return pwd.getpwuid(uid).pw_dir.rstrip("/") if uid is not None else None
    except KeyError:
        return None


def _conf(base: str, parts: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """The file's NCCL_ lines. No link is followed: a container's owner chooses where its links point, root reads them."""
    try:
        fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # the process is gone, or its root may not be looked into
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = inner
        inner = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        os.close(fd)
        fd = inner
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return
        lines = decode(os.read(fd, _CONF_CAP)).splitlines()
    except OSError:
        return  # not there, or a link
    finally:
        os.close(fd)
    yield {"text": "\n".join(redact.text(line) for line in lines if re.match(r"\s*NCCL_\w+\s*=", line))}


def logs(context: Context) -> Source:
    """The debug logs of the processes that matter, each file once, the lines that matter."""
    pids = [process["pid"] for process in context.result("processes").data or [] if not process["vanished"]]
    if not pids:
        return absent("no process that matters")
    entries: list[dict[str, Any]] = []
    seen: set[tuple[int, int]] = set()
    left = _TOTAL_CAP
    for pid, result in zip(pids, children.stepwise(pids, _logs, 2.0, context.within(8))):
        for entry in result.parts.get("logs", []):
            identity = tuple(entry.pop("identity"))
            if identity in seen:
                continue
            seen.add(identity)
            if len(entry["text"]) > left:
                entry["text"] = entry["text"][:left] + CUT
            left -= min(left, len(entry["text"]))
            entries.append({"pid": pid, **entry})
    return ok(entries) if entries else absent("no process holds an NCCL debug log open")


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


def _log(link: str, target: str) -> Optional[dict[str, Any]]:
    """One log through its descriptor's link, which a rename or a container's own view of paths cannot mislead."""
    try:
        if not stat.S_ISREG(Path(link).stat().st_mode):
            return None
        fd = os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return None
        head = os.pread(fd, _HEAD_BYTES, 0)
        start = max(_HEAD_BYTES, facts.st_size - _TAIL_BYTES)
        tail = os.pread(fd, _TAIL_BYTES, start) if facts.st_size > _HEAD_BYTES else b""
    finally:
        os.close(fd)
    if not _SIGN.search(head) and not _SIGN.search(tail):
        return None
    return {"identity": [facts.st_dev, facts.st_ino], "path": target, "size_bytes": facts.st_size, "text": relevant(head, tail)}


def relevant(head: bytes, tail: bytes) -> str:
    """The lines that matter of a log's beginning and end, secrets taken out, at most 256 KiB."""
    kept: list[str] = []
    size = 0
    for line in (decode(head) + ("\n" if tail else "") + decode(tail)).split("\n"):
        if not _KEPT.search(line):
            continue
        kept.append(redact.text(line[:2000]))
        size += len(kept[-1]) + 1
        if size > _LOG_CAP:
            kept[-1] = CUT
            break
    return "\n".join(kept)
